#!/usr/bin/env bash
# Installs the packages that the build, the tests and the quickstart need, where they are missing (Debian, Ubuntu).
# Sourced, it also exports what Open MPI needs on a workstation or in a container.

lockstep_packages=(
  g++ cmake ninja-build ccache pkg-config
  libopenmpi-dev openmpi-bin libhdf5-dev libboost-program-options-dev libdnnl-dev libdeflate-dev libxxhash-dev
  nlohmann-json3-dev libfmt-dev
  libgtest-dev libgmock-dev
  dataset-fashion-mnist hdf5-tools
)

lockstep_setup() {
  if ! command -v dpkg-query >/dev/null; then
    echo "setup: no Debian system; needed are a C++20 compiler, CMake >= 3.22, Ninja, pkg-config, Open MPI, HDF5 (C)," \
      "Boost.Program_options, oneDNN, libdeflate, xxHash, nlohmann-json, fmt, GoogleTest with GoogleMock"
    return 0
  fi
  local present missing=() package
  # shellcheck disable=SC2016  # the format is dpkg-query's own
  present=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' "${lockstep_packages[@]}" 2>/dev/null || true)
  for package in "${lockstep_packages[@]}"; do
    grep -qxF "$package installed" <<<"$present" || missing+=("$package")
  done
  if [ "${#missing[@]}" = 0 ]; then
    echo "setup: all ${#lockstep_packages[@]} packages are installed"
    return 0
  fi
  local as_root=()
  [ "$(id -u)" = 0 ] || as_root=(sudo)
  "${as_root[@]}" apt-get update -qq || return
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || return
  echo "setup: installed ${missing[*]}"
}

lockstep_mpi_environment() {
  # More ranks than cores is normal in tests.
  export OMPI_MCA_rmaps_base_oversubscribe=1
  if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
  fi
}

lockstep_mpi_environment
lockstep_setup
