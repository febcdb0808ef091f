"""python -m testbed.cluster"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import pydantic
import typer
import yaml

from testbed.cluster import build, config, local, volumes
from testbed.cluster.cluster import Cluster, Node
from testbed.cluster.errors import ClusterError

app = typer.Typer(
    help="A real Kubernetes cluster on this machine, in a network of its own.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
NodeName = Annotated[str, typer.Argument(help="the node's name")]


@app.command()
def up(
    nodes: Annotated[Path, typer.Option(help="the nodes file")] = config.DEFAULT_NODES_FILE,
) -> None:
    """Bring the cluster up; does nothing where it is up already."""
    cluster = Cluster.up(nodes)
    print(f"The cluster is up: export KUBECONFIG={cluster.kubeconfig}")


@app.command()
def down() -> None:
    """Take the cluster down and remove every trace of it but the cached programs."""
    local.down()


@app.command()
def status() -> None:
    """Say what runs."""
    found = local.status()
    if not found:
        raise ClusterError("the cluster is not up")
    for name, state in found.items():
        print(f"{name:20} {state}")


@app.command()
def kubeconfig() -> None:
    """Print the path of the administrator's kubeconfig."""
    print(Cluster.connect().kubeconfig)


@app.command(name="add-node")
def add_node(
    file: Annotated[
        Path, typer.Argument(help="one node in YAML, as in the list of a nodes file; - for standard input")
    ],
) -> None:
    """Add a node to the running cluster."""
    try:
        content = sys.stdin.read() if str(file) == "-" else file.read_text()
        spec = config.Node.model_validate(yaml.safe_load(content))
    except OSError as error:
        raise ClusterError(f"cannot read {file}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ClusterError(f"{file} is not YAML: {error}") from error
    except pydantic.ValidationError as error:
        raise ClusterError(f"{file}: {config.describe(error)}") from error
    local.add_node(spec)


@app.command(name="lose-node")
def lose_node(name: NodeName) -> None:
    """End everything on a node at once, as a power cut would."""
    Node(name).lose()


@app.command(name="start-node")
def start_node(name: NodeName) -> None:
    """Switch a lost node on again."""
    Node(name).start()


@app.command(name="stop-node")
def stop_node(name: NodeName) -> None:
    """Freeze everything on a node, as a machine that hangs."""
    Node(name).stop()


@app.command(name="resume-node")
def resume_node(name: NodeName) -> None:
    """Let a stopped node go on."""
    Node(name).resume()


@app.command(name="import")
def import_images(
    archives: Annotated[list[Path], typer.Argument(help="OCI archives whose images carry full names")],
    node: Annotated[list[str] | None, typer.Option(help="only into this node; may be repeated")] = None,
) -> None:
    """Give images to the nodes, there being no registry."""
    for image in local.import_images(archives, node):
        print(f"{image.name}  {image.by_digest}")


@app.command()
def volume(
    claim: Annotated[str, typer.Argument(help="NAMESPACE/CLAIM; the claim itself is yours to make")],
    size_mib: Annotated[int | None, typer.Option(help="a file system of this size, which can be filled")] = None,
) -> None:
    """Make an empty ReadWriteMany volume for a claim that asks for no storage class."""
    namespace, _, name = claim.partition("/")
    if not namespace or not name:
        raise ClusterError(f"{claim!r} is no NAMESPACE/CLAIM")
    print(volumes.create(local.KUBECONFIG, namespace, name, size_mib))


@app.command(name="build")
def build_programs(
    extras: Annotated[
        list[str] | None, typer.Option("--with", help=f"also build this program: {', '.join(build.EXTRAS)}")
    ] = None,
) -> None:
    """Build the cluster's programs and print the directory they are in (helm is one of them)."""
    print(build.programs().directory)
    for name in extras or ():
        print(build.build_extra(name))


def main() -> None:
    """Ends with one line where something is wrong, never with a traceback."""
    try:
        app()
    except (ClusterError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
