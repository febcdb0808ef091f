"""What runs inside the toolchain image: convert, build and serve. Standard library only, shipped as one zipapp."""
