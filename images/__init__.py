"""Builds the project's container images as OCI archives, on a machine with neither Docker nor a registry.

`python -m images build` builds, `python -m images list` says what is there. What is built are the Containerfiles beside
this file; their base image is an argument: python:3.12-slim where a registry is, a Debian bootstrapped here otherwise.
"""
