"""STAND-IN for Triton's `tensorrtllm` backend, run by Triton's python backend: numpy instead of a GPU.

Reads the model configuration that the real backend reads, loads all ranks of the engine, and serves with in-flight
batching, streaming and cancellation. Ranks above 0 check their engine and then wait, as the real ones do.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# One thread, set before numpy is imported: at one row per product a second thread gains little, and on a busy machine
# OpenBLAS's threads spend more time waiting for each other than computing.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import triton_python_backend_utils as pb_utils  # type: ignore[import-not-found]
from trtllm_standin import NOTICE
from trtllm_standin.executor import (
    EngineError,
    KvCacheParameters,
    check_world,
    load_engine,
    load_plan,
    read_engine_config,
)
from trtllm_standin.gpus import Gpu, NoDriverError, visible_gpus
from trtllm_standin.log import runtime_log
from trtllm_standin.scheduler import Output, RequestRefusedError, Scheduler
from trtllm_standin.triton_metrics import MetricsReporter
from trtllm_standin.triton_parameters import Parameters
from trtllm_standin.triton_requests import RequestOptions, Responder, ResponseStream, parse_request, response_tensors

FAILED = "unexpected error when creating modelInstanceState: "
ORPHAN_CHECK_SECONDS = 0.5
LOGITS = {"context_logits", "generation_logits"}


class TritonPythonModel:
    """One instance of the `tensorrt_llm` model."""

    def initialize(self, args: Mapping[str, str]) -> None:
        runtime_log("INFO", NOTICE)
        config = json.loads(args["model_config"])
        try:
            self._load(config, args)
        except EngineError as error:
            raise pb_utils.TritonModelException(f"{FAILED}{error}") from error

    def _load(self, config: Mapping[str, Any], args: Mapping[str, str]) -> None:
        parameters = Parameters(config)
        parameters.check_batching_strategy()
        kv_cache = KvCacheParameters(parameters.max_tokens_in_paged_kv_cache(), parameters.kv_cache_fraction())
        reuse, chunked = parameters.kv_cache_reuse(), parameters.chunked_context()
        engine_dir = _engine_dir(parameters)
        try:
            gpus = visible_gpus()
        except NoDriverError:
            gpus = ()
        if not gpus:
            raise EngineError(
                "[TensorRT-LLM][ERROR] CUDA runtime error in cudaGetDeviceCount: no CUDA-capable device is detected"
            )
        mpi_size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
        mpi_rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", "0"))
        runtime_log("INFO", f"MPI size: {mpi_size}, MPI local size: {mpi_size}, rank: {mpi_rank}")
        if mpi_rank > 0:
            _wait_as_worker(engine_dir, gpus, mpi_size, mpi_rank)

        batching = config.get("dynamic_batching") or {}
        queue_size = int((batching.get("default_queue_policy") or {}).get("max_queue_size", 0))
        self._engine = load_engine(
            engine_dir,
            gpus,
            mpi_size=mpi_size,
            kv_cache=kv_cache,
            max_queue_size=queue_size,
            enable_chunked_context=chunked,
            enable_kv_cache_reuse=reuse,
        )
        self._exclude_input = parameters.exclude_input_in_output()
        self._batched = config.get("max_batch_size", 0) > 0
        self._decoupled = bool((config.get("model_transaction_policy") or {}).get("decoupled", False))
        logits = next(output for output in config["output"] if output["name"] in LOGITS)
        self._logits_dtype = pb_utils.triton_string_to_numpy(logits["data_type"])
        self._streams: dict[str, ResponseStream] = {}
        self._scheduler = Scheduler(
            self._engine.model, self._engine.limits, self._engine.pool, parameters.cancellation_check_seconds()
        )
        self._reporter = MetricsReporter(
            pb_utils, self._engine, args["model_name"], args["model_version"], self._scheduler.statistics()
        )
        self._finished = threading.Event()
        self._metrics_thread = threading.Thread(
            target=self._report_metrics, args=(parameters.stats_check_seconds(),), daemon=True
        )
        self._metrics_thread.start()

    def _report_metrics(self, period_seconds: float) -> None:
        while not self._finished.wait(period_seconds):
            self._reporter.report(self._scheduler.statistics)

    def execute(self, requests: list[Any]) -> None:
        for request in requests:
            self._start(request)
        # Responses go out through their senders, from the scheduler's thread.

    def _start(self, request: Any) -> None:
        responder = Responder(request.get_response_sender(), pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        self._reporter.request_opened()
        inputs = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        request_id, names = request.request_id(), request.requested_output_names()

        def close(response: Any) -> None:
            self._reporter.request_closes(self._scheduler.statistics)
            responder.close(response)

        def refuse(message: str) -> None:
            close(pb_utils.InferenceResponse(error=pb_utils.TritonError(message)))

        if "stop" in inputs and inputs["stop"].any():
            running = self._streams.get(request_id)
            if running is None:
                refuse(f"The request id {request_id} is not in flight")
            else:
                running.stop()
                close(pb_utils.InferenceResponse(output_tensors=[]))
            return
        try:
            rows = parse_request(inputs, batched=self._batched, exclude_input=self._exclude_input)
        except RequestRefusedError as error:
            refuse(str(error))
            return
        if not self._decoupled and (len(rows) > 1 or any(row.streaming for row in rows)):
            refuse("Streaming is only supported if model is deployed using decoupled mode.")
            return

        def send(options: RequestOptions, output: Output, generated: int, log_prob: float, last: bool) -> None:
            tensors = response_tensors(
                options, output, names, batched=self._batched, generated=generated, log_prob=log_prob
            )
            for name in LOGITS & tensors.keys():
                tensors[name] = tensors[name].astype(self._logits_dtype)
            response = pb_utils.InferenceResponse(
                output_tensors=[pb_utils.Tensor(name, array) for name, array in tensors.items()]
            )
            if last:
                self._streams.pop(request_id, None)
                close(response)
            else:
                responder.send(response)

        def send_error(message: str, last: bool) -> None:
            response = pb_utils.InferenceResponse(error=pb_utils.TritonError(message))
            if last:
                self._streams.pop(request_id, None)
                close(response)
            else:
                responder.send(response)

        stream = ResponseStream(rows, send, send_error, responder.is_cancelled)
        if request_id:
            self._streams[request_id] = stream
        for number, generation in enumerate(stream.requests):
            try:
                self._scheduler.submit(generation)
            except RequestRefusedError as error:
                stream.refuse(str(error), len(stream.requests) - number)
                return

    def finalize(self) -> None:
        self._reporter.stop()
        self._finished.set()
        self._metrics_thread.join()
        self._scheduler.stop()


def _engine_dir(parameters: Parameters) -> Path:
    """The engine directory; a path that does not exist is reported as the real backend misreports it."""
    path = parameters.text("gpt_model_path")
    if path is None or not Path(path).exists():
        runtime_log("WARNING", "gpt_model_path is not specified, will be left empty")
        runtime_log("WARNING", "encoder_model_path is not specified, will be left empty")
        raise EngineError("[TensorRT-LLM][ERROR] Assertion failed: Both encoder and decoder model paths are empty")
    return Path(path)


def _wait_as_worker(engine_dir: Path, gpus: tuple[Gpu, ...], mpi_size: int, mpi_rank: int) -> None:
    """Check this rank's engine, then never return: a worker's server must not look ready."""
    config = read_engine_config(engine_dir)
    check_world(config, mpi_size, gpus)
    load_plan(engine_dir, mpi_rank, gpus[mpi_rank % len(gpus)])
    runtime_log("INFO", f"STAND-IN: rank {mpi_rank} waits; rank 0 computes its shard")
    server = os.getppid()
    while os.getppid() == server:
        time.sleep(ORPHAN_CHECK_SECONDS)
    runtime_log("INFO", "Terminating worker process since shutdown signal was received from leader or orchestrator")
    sys.stderr.flush()
    os._exit(0)
