from testbed.cluster.cli import main

main()
