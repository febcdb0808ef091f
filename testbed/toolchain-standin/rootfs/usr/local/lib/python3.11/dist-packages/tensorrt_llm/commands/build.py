"""trtllm-build (STAND-IN): one engine per rank of a TensorRT-LLM checkpoint."""

import json
import multiprocessing
import os
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from trtllm_standin.build_config import build_config_from
from trtllm_standin.build_flags import parser
from trtllm_standin.builder import BuildRequest, build_and_save
from trtllm_standin.gpus import NoDriverError, visible_gpus
from trtllm_standin.log import command_log, elapsed


def _refuse_unimplemented(args: Any) -> None:
    refused = [
        flag
        for flag, given in (
            ("--model_cls_file", args.model_cls_file),
            ("--strip_plan", args.strip_plan),
            ("--lora_plugin", args.lora_plugin != "disable" or args.lora_dir),
            ("--speculative_decoding_mode", args.speculative_decoding_mode),
            ("--visualize_network", args.visualize_network),
            ("--max_prompt_embedding_table_size", args.max_prompt_embedding_table_size),
            ("--gather_context_logits", args.gather_context_logits),
        )
        if given
    ]
    if refused:
        raise NotImplementedError(f"STAND-IN: {', '.join(refused)} is not implemented")


def _build_ranks(request: BuildRequest, workers: int) -> None:
    world_size = request.pretrained["mapping"]["world_size"]
    mpi_size = int(os.environ.get("OMPI_COMM_WORLD_SIZE", "1"))
    if mpi_size > 1:
        mpi_rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
        local = int(os.environ["OMPI_COMM_WORLD_LOCAL_RANK"]) % int(os.environ["OMPI_COMM_WORLD_LOCAL_SIZE"])
        for rank in range(mpi_rank, world_size, mpi_size):
            build_and_save(request, rank, visible_gpus()[local])
        return
    if workers == 1:
        for rank in range(world_size):
            build_and_save(request, rank, visible_gpus()[0])
        return
    # With no GPU workers is 0, and this line fails as the real command does.
    with ProcessPoolExecutor(max_workers=workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        gpus = visible_gpus()
        futures = [pool.submit(build_and_save, request, rank, gpus[rank % workers]) for rank in range(world_size)]
        failures = [failure for failure in (future.exception() for future in futures) if failure]
    for failure in failures:
        traceback.print_exception(failure)
    assert not failures, "Engine building failed, please check error log."


def main(arguments: Sequence[str] | None = None) -> None:
    args = parser().parse_args(arguments)
    command_log.set_level(args.log_level)
    if args.gather_all_token_logits:
        args.gather_context_logits = args.gather_generation_logits = True
    if args.gather_context_logits and args.max_draft_len > 0:
        raise RuntimeError(
            "Gather context logits is not support with draft len > 0. If want to get the accepted tokens' logits from "
            "target model, please just enable gather_generation_logits"
        )
    _refuse_unimplemented(args)
    started = time.monotonic()
    Path(args.output_dir).mkdir(parents=True, exist_ok=True)
    try:
        gpu_count = len(visible_gpus())
    except NoDriverError:
        gpu_count = 0
        command_log.error("STAND-IN: this container was given no GPU", "TRT")
    workers = min(gpu_count, args.workers)
    if hasattr(args, "paged_kv_cache"):
        command_log.warning("Option --paged_kv_cache is deprecated, use --kv_cache_type=paged/disabled instead.")
        args.kv_cache_type = "PAGED" if args.paged_kv_cache == "enable" else "CONTINUOUS"

    checkpoint = args.checkpoint_dir if args.checkpoint_dir is not None else args.model_config
    assert checkpoint is not None, "one of --checkpoint_dir and --model_config is needed"
    if checkpoint.lower().endswith(".json"):
        raise NotImplementedError("STAND-IN: a build without weights (--model_config) is not implemented")
    pretrained = json.loads((Path(checkpoint) / "config.json").read_text())
    if args.logits_dtype:
        pretrained["logits_dtype"] = args.logits_dtype
    request = BuildRequest(
        checkpoint_dir=Path(checkpoint),
        output_dir=Path(args.output_dir),
        pretrained=pretrained,
        build=build_config_from(args),
        log_level=args.log_level,
        dry_run=args.dry_run,
    )
    _build_ranks(request, workers)
    command_log.info(f"Total time of building all engines: {elapsed(time.monotonic() - started)}")


if __name__ == "__main__":
    main()
