"""examples/run.py: load an engine directory and generate greedily from a text."""

import argparse
import csv
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from . import HELP_EPILOG
from .executor import EngineError, KvCacheParameters, LoadedEngine, load_engine
from .gpus import NoDriverError, visible_gpus
from .llama import Segment
from .log import runtime_log
from .tokenizer import ModelTokenizer


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="run.py", epilog=HELP_EPILOG)
    add = result.add_argument
    add("--engine_dir", type=str, default="engine_outputs")
    add("--tokenizer_dir", default=None, help="Hugging Face directory of the tokenizer")
    add("--max_output_len", type=int, required=True)
    add("--max_input_length", type=int, default=923)
    add("--input_text", type=str, nargs="+", default=["Born in north-east France, Soyer trained as a"])
    add("--output_csv", type=str, default=None, help="where the tokens go instead of the text")
    add("--max_tokens_in_paged_kv_cache", type=int, default=None)
    add("--kv_cache_free_gpu_memory_fraction", type=float, default=0.9)
    add("--log_level", type=str, default="error")
    return result


def generate(engine: LoadedEngine, prompt: Sequence[int], count: int, end_id: int) -> list[int]:
    """The most probable tokens after `prompt`.

    Raises:
        EngineError: the network gave no number.
    """
    cache, tokens, out = engine.model.new_cache(), list(prompt), list[int]()
    while len(out) < count:
        (logits,) = engine.model.forward([Segment(np.array(tokens, np.int64), cache)])
        if not np.isfinite(logits).all():
            raise EngineError("[TensorRT-LLM][ERROR] STAND-IN: the network's logits are not numbers")
        token = int(logits.argmax())
        out.append(token)
        if token == end_id:
            break
        tokens = [token]
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    args = parser().parse_args(arguments)
    tokenizer = ModelTokenizer(Path(args.tokenizer_dir))
    try:
        engine = load_engine(
            Path(args.engine_dir),
            visible_gpus(),
            mpi_size=1,
            kv_cache=KvCacheParameters(args.max_tokens_in_paged_kv_cache, args.kv_cache_free_gpu_memory_fraction),
            max_queue_size=0,
            enable_chunked_context=False,
            enable_kv_cache_reuse=False,
        )
        for number, text in enumerate(args.input_text):
            prompt = tokenizer.encode(text, add_special_tokens=True)[: args.max_input_length]
            tokens = generate(engine, prompt, args.max_output_len, tokenizer.end_id)
            if args.output_csv:
                with Path(args.output_csv).open("a", newline="") as file:
                    csv.writer(file).writerow([*prompt, *tokens])
                continue
            print(f'Input [Text {number}]: "{tokenizer.decode(prompt, skip_special_tokens=False)}"')
            print(f'Output [Text {number} Beam 0]: "{tokenizer.decode(tokens, skip_special_tokens=False)}"', flush=True)
    except (EngineError, NoDriverError) as error:
        runtime_log("ERROR", str(error))
        print(f"RuntimeError: {error}", file=sys.stderr)
        return 1
    return 0
