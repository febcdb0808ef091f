// What the cluster's own tests run in Pods: one static program, so that they need no other image.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) == 0 {
		return fmt.Errorf("usage: probe environment | serve ADDRESS | get URL | resolve NAME | write FILE TEXT | fill FILE | allocate MIB")
	}
	switch command, rest := arguments[0], arguments[1:]; {
	case command == "environment" && len(rest) == 0:
		return environment()
	case command == "serve" && len(rest) == 1:
		return http.ListenAndServe(rest[0], http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintln(w, "you asked for", r.URL.Path)
		}))
	case command == "get" && len(rest) == 1:
		return get(rest[0])
	case command == "resolve" && len(rest) == 1:
		addresses, err := net.LookupHost(rest[0])
		fmt.Println(strings.Join(addresses, " "))
		return err
	case command == "write" && len(rest) == 2:
		return os.WriteFile(rest[0], []byte(rest[1]), 0o644)
	case command == "fill" && len(rest) == 1:
		return fill(rest[0])
	case command == "allocate" && len(rest) == 1:
		return allocate(rest[0])
	}
	return fmt.Errorf("not understood: %v", arguments)
}

func environment() error {
	variables := map[string]string{}
	for _, entry := range os.Environ() {
		name, value, _ := strings.Cut(entry, "=")
		variables[name] = value
	}
	return json.NewEncoder(os.Stdout).Encode(variables)
}

func get(url string) error {
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	_, err = io.Copy(os.Stdout, response.Body)
	return err
}

// fill writes until the file system refuses.
func fill(path string) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, 1<<20)
	for {
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
}

// allocate touches every page of so much memory, then holds it.
func allocate(text string) error {
	mib, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	held := make([]byte, mib<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	fmt.Println("allocated", mib, "MiB")
	time.Sleep(time.Hour)
	fmt.Println(held[0])
	return nil
}
