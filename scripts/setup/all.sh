#!/usr/bin/env bash
# All set-up of the tests and the demo. A second run finds everything there and takes a moment.
set -euo pipefail
cd "$(dirname "$0")"

./rust.sh
./packages.sh build vm image test
./kernel.sh
./images.sh busybox debian
./registry.sh
./tools.sh vhost-device-vsock
