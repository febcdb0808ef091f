"""Builds the project's container images as OCI archives, on a machine with neither Docker nor a registry.

`python -m testbed.images build` builds, `python -m testbed.images list` says what is there. It builds the operator's
Containerfile and the testbed's. Their base image is an argument: python:3.12-slim where a registry is, a Debian
bootstrapped here otherwise.
"""
