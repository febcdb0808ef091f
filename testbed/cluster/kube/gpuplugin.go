package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// standInGPU is what a container is told of one GPU; the stand-in nvidia-smi prints it.
type standInGPU struct {
	Index             int    `json:"index"`
	UUID              string `json:"uuid"`
	Name              string `json:"name"`
	ComputeCapability string `json:"compute_cap"`
	MemoryTotalMiB    int    `json:"memory_total_mib"`
	MemoryReservedMiB int    `json:"memory_reserved_mib"`
	DriverVersion     string `json:"driver_version"`
}

// device is one thing that can be allocated. Several are on one GPU where it is shared.
type device struct {
	ID  string     `json:"id"`
	GPU standInGPU `json:"gpu"`
}

// gpuPlugin speaks the kubelet's device-plugin protocol for one resource. The GPUs are stand-ins: no device file exists.
type gpuPlugin struct {
	pluginapi.UnimplementedDevicePluginServer
	resource string
	devices  []device
	server   *grpc.Server
}

func (p *gpuPlugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

func (p *gpuPlugin) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	response := &pluginapi.ListAndWatchResponse{}
	for _, d := range p.devices {
		response.Devices = append(response.Devices, &pluginapi.Device{ID: d.ID, Health: pluginapi.Healthy})
	}
	if err := stream.Send(response); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *gpuPlugin) Allocate(_ context.Context, request *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	response := &pluginapi.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		environment, err := allocate(p.devices, container.DevicesIds)
		if err != nil {
			return nil, err
		}
		response.ContainerResponses = append(response.ContainerResponses, &pluginapi.ContainerAllocateResponse{Envs: environment})
	}
	return response, nil
}

// allocate gives the environment of a container that got the devices with these ids. As NVML does, it numbers the GPUs
// that the container sees from 0.
func allocate(devices []device, ids []string) (map[string]string, error) {
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	gpus, uuids, seen := []standInGPU{}, []string{}, map[string]bool{}
	for _, d := range devices {
		if !wanted[d.ID] {
			continue
		}
		delete(wanted, d.ID)
		if seen[d.GPU.UUID] {
			continue
		}
		seen[d.GPU.UUID] = true
		gpu := d.GPU
		gpu.Index = len(gpus)
		gpus, uuids = append(gpus, gpu), append(uuids, gpu.UUID)
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("the kubelet asked for devices this node does not have: %v", wanted)
	}
	described, err := json.Marshal(gpus)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"NVIDIA_VISIBLE_DEVICES": strings.Join(uuids, ","),
		"LLMENGINE_STANDIN_GPUS": string(described),
	}, nil
}

// runGPUPlugin serves every resource of a JSON file {resource: [device]} until it is killed.
func runGPUPlugin() error {
	path := flag.String("devices", "", "JSON file: {resource name: [device]}")
	flag.Parse()
	content, err := os.ReadFile(*path)
	if err != nil {
		return err
	}
	resources := map[string][]device{}
	if err := json.Unmarshal(content, &resources); err != nil {
		return fmt.Errorf("%s: %w", *path, err)
	}
	plugins := []*gpuPlugin{}
	for resource, devices := range resources {
		plugins = append(plugins, &gpuPlugin{resource: resource, devices: devices})
	}
	// A kubelet that starts empties the directory: whenever our socket is gone and the kubelet's is there, register anew.
	for ; ; time.Sleep(200 * time.Millisecond) {
		if _, err := os.Stat(pluginapi.KubeletSocket); err != nil {
			continue
		}
		for _, p := range plugins {
			if err := p.ensureRegistered(); err != nil {
				log.Printf("%s: %v; trying again", p.resource, err)
			}
		}
	}
}

func (p *gpuPlugin) ensureRegistered() error {
	socket := filepath.Join(pluginapi.DevicePluginPath, "stand-in-"+strings.ReplaceAll(p.resource, "/", "-")+".sock")
	if _, err := os.Stat(socket); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if p.server != nil {
		p.server.Stop()
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	p.server = grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(p.server, p)
	go p.server.Serve(listener)
	if err := register(filepath.Base(socket), p.resource); err != nil {
		p.server.Stop() // removes the socket, so the next round starts over
		return err
	}
	return nil
}

func register(endpoint, resource string) error {
	connection, err := grpc.NewClient("unix://"+pluginapi.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, err = pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}
