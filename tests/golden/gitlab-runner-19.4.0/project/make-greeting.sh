#!/bin/sh
# What there is to build.
echo "${1:?a greeting}, world"
