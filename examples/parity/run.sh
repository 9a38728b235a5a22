#!/bin/sh
echo "ran with $# arguments: $*"
