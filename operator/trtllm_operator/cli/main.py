"""`llmengine`: say before a GPU is asked for whether an LLMEngine can work, and why.

Exit codes: 0 it works, 1 it does not (the planner says no; what `why` was asked about is not ready), 2 wrong command
line, 3 something given can't be used, 4 the hub or the cluster can't be reached.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from .errors import CliError
from .render import Output

if TYPE_CHECKING:
    from .judged import Nodes, Planned

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Plans TensorRT-LLM engines: what works on which GPU, with the arithmetic, before a GPU is asked for.",
)

File = Annotated[str, typer.Option("--file", "-f", help="Manifest with one LLMEngine; - is standard input.")]
Model = Annotated[
    str | None,
    typer.Option("--model", help="Directory of the model, or owner/name[@revision], in place of the manifest's."),
]
CatalogFiles = Annotated[
    list[str] | None,
    typer.Option("--catalog", help="File or ConfigMap that adds to the catalog or corrects it; may be repeated."),
]
Server = Annotated[bool, typer.Option("--server", help="Ask the cluster of the kubeconfig for its nodes' GPUs.")]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Namespace; that of the kubeconfig's context without.")
]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="How to print.")]


def _run(command: Callable[[], int]) -> None:
    """End the process with the command's exit code; a failure is one line."""
    try:
        code = command()
    except CliError as error:
        print(f"llmengine: {error}", file=sys.stderr)
        code = error.code
    except BrokenPipeError:
        sys.stderr.close()
        code = 0
    raise typer.Exit(code)


def _nodes(server: bool) -> Nodes | None:
    if not server:
        return None
    from .cluster import nodes

    return nodes()


def _planned(
    file: str,
    model: str | None,
    catalog_files: list[str] | None,
    server: bool,
    p50: int | None = None,
    image: str | None = None,
) -> Planned:
    from .files import find_release, read_catalog, read_engine
    from .judged import Planned, judge_targets
    from .models import model_of

    name, spec = read_engine(file)
    catalog = read_catalog(catalog_files or ())
    release = find_release(catalog, spec.release)
    found = model_of(spec.model, model)
    targets = judge_targets(spec, found.facts, release, catalog, _nodes(server), p50)
    return Planned(name, spec, found, release, image or release.image, targets)


@app.command()
def plan(
    file: File,
    model: Model = None,
    catalog: CatalogFiles = None,
    server: Server = False,
    p50: Annotated[
        int | None, typer.Option("--p50", min=1, help="Median tokens of a request, prompt and answer.")
    ] = None,
    image: Annotated[
        str | None,
        typer.Option("--image", help="Toolchain image by digest, as the operator has it: names follow from it."),
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Judge a manifest as the operator would: every failing check, memory, and what is built where."""

    def command() -> int:
        from .plan import show_plan

        return show_plan(_planned(file, model, catalog, server, p50, image), output)

    _run(command)


@app.command()
def explain(
    file: File,
    number: Annotated[str | None, typer.Argument(help="Name of the number, as plan prints it; all without.")] = None,
    model: Model = None,
    catalog: CatalogFiles = None,
    server: Server = False,
    output: OutputOption = "table",
) -> None:
    """Show how a number of a plan comes about."""

    def command() -> int:
        from .explain import explain as explain_numbers

        return explain_numbers(_planned(file, model, catalog, server), number, output)

    _run(command)


@app.command()
def fits(
    model: Annotated[str, typer.Argument(help="Directory of the model, or owner/name[@revision] on the hub.")],
    gpu: Annotated[list[str], typer.Option("--gpu", help="Product as the node label says it; may be repeated.")],
    release: Annotated[str, typer.Option("--release", help="Release; the newest that builds engines without.")] = "",
    tokens: Annotated[
        int, typer.Option("--tokens", min=2, max=16_777_216, help="Tokens of a request, prompt and answer.")
    ] = 2048,
    everything: Annotated[bool, typer.Option("--all", help="Show what does not work as well, and why.")] = False,
    catalog: CatalogFiles = None,
    output: OutputOption = "table",
) -> None:
    """Show which tensor-parallel sizes and precisions of a model work on GPUs, and how much at once."""

    def command() -> int:
        from ..planning.target_gpu import TargetGpu
        from .files import find_release, read_catalog
        from .fits import fits as fit_all
        from .judged import alike
        from .models import facts_of_name

        known = read_catalog(catalog or ())
        newest = next(name for name in known.release_names if known.release(name).builds_engines)
        targets = []
        for product in gpu:
            found = known.gpu(product)
            if found is None:
                raise CliError(f"GPU {product} is not in the catalog{alike(product, known)}")
            targets.append(TargetGpu.of(found, product))
        chosen = find_release(known, release or newest)
        return fit_all(facts_of_name(model), chosen, targets, tokens, output, everything=everything)

    _run(command)


@app.command()
def why(
    name: Annotated[str, typer.Argument(help="LLMEngine, or EngineArtifact (model-, checkpoint- or engine-...).")],
    namespace: Namespace = None,
    output: OutputOption = "table",
) -> None:
    """Show where an LLMEngine or an artifact of a cluster stands, what blocks it, and what to change."""

    def command() -> int:
        from .show_why import show_why
        from .why_cluster import why_of

        return show_why(why_of(name, namespace), output)

    _run(command)


@app.command()
def restart(
    name: Annotated[str, typer.Argument(help="LLMEngine.")],
    target: Annotated[str | None, typer.Option("--target", help="One target alone.")] = None,
    namespace: Namespace = None,
) -> None:
    """Restart the servers of an LLMEngine: each new one starts before an old one ends, where a GPU is free."""

    def command() -> int:
        from .restart import restart as restart_servers

        return restart_servers(name, target, namespace)

    _run(command)


@app.command("why-rebuild")
def why_rebuild(
    before: Annotated[
        str,
        typer.Argument(
            help="File with an EngineArtifact, a manifest.json or an LLMEngine, or eart/NAME, llmengine/NAME."
        ),
    ],
    after: Annotated[str, typer.Argument(help="The other one.")],
    namespace: Namespace = None,
    catalog: CatalogFiles = None,
    output: OutputOption = "table",
) -> None:
    """Name the inputs in which two artifacts, or those of two LLMEngines, differ, and what is built for them."""

    def command() -> int:
        from .rebuild import why_rebuild as compare

        return compare(before, after, namespace, catalog or (), output)

    _run(command)


@app.command()
def flags(
    release: Annotated[str, typer.Argument(help="Release, such as 1.2.1.")],
    name: Annotated[str, typer.Argument(metavar="COMMAND", help="trtllm-build, quantize, convert-llama, ...")],
    catalog: CatalogFiles = None,
    output: OutputOption = "table",
) -> None:
    """List the flags of a release's command, and which of them spec.build.extraFlags takes."""

    def command() -> int:
        from .catalog import show_flags
        from .files import find_release, read_catalog

        return show_flags(find_release(read_catalog(catalog or ()), release), name, output)

    _run(command)


@app.command()
def releases(catalog: CatalogFiles = None, output: OutputOption = "table") -> None:
    """List the releases of the catalog."""

    def command() -> int:
        from .catalog import show_releases
        from .files import read_catalog

        return show_releases(read_catalog(catalog or ()), output)

    _run(command)


@app.command()
def gpus(catalog: CatalogFiles = None, output: OutputOption = "table") -> None:
    """List the GPUs of the catalog."""

    def command() -> int:
        from .catalog import show_gpus
        from .files import read_catalog

        return show_gpus(read_catalog(catalog or ()), output)

    _run(command)


if __name__ == "__main__":
    app()
