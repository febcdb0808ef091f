#!/bin/sh
# Lays the Triton server that the installed nvidia-pytriton wheel carries out as NVIDIA's images do, and drops the rest
# of that wheel and what numpy needs only to be tested or built against.
set -eu

packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
wheel=$packages/pytriton/tritonserver
triton=/opt/tritonserver

mkdir -p "$triton/bin" "$triton/backends" "$triton/caches"
install -m 755 "$wheel/bin/tritonserver" "$triton/bin/"
cp -r "$wheel/backends/python" "$triton/backends/"
cp -r "$wheel/caches/local" "$triton/caches/"
install -m 755 "$wheel/python_backend_stubs/$python/triton_python_backend_stub" "$triton/backends/python/"

# The server looks for its libraries in $ORIGIN/../lib, the backends in $ORIGIN/../../../../nvidia_pytriton.libs, which
# is in the root directory.
mv "$packages/nvidia_pytriton.libs" "$triton/lib"
rm -f "$triton"/lib/libpython3-* # of another Python, for its stub alone
ln -s opt/tritonserver/lib /nvidia_pytriton.libs

rm -r "$packages/pytriton" "$packages"/nvidia_pytriton-*
find "$packages/numpy" -depth -type d \( -name tests -o -name f2py -o -name distutils -o -name include \) \
    -exec rm -r {} +

# Where this Python does not look into rootfs/'s directory by itself, a path file makes it.
dist=/usr/local/lib/python$python/dist-packages
[ "$packages" = "$dist" ] || echo "$dist" >"$packages/dist-packages.pth"
