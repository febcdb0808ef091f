from tests.cluster.cli import main

main()
