#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suite `abi`: what programs outside see of libmdlm. See the files it imports."""

import sys

import harness
import test_header  # noqa: F401  compiles alone; values and layouts do not change
import test_library  # noqa: F401  exported symbols; abidiff
import test_mpi  # noqa: F401  the same of libmdlm-mpi
import test_install  # noqa: F401  the header's program; a program outside the tree with pkg-config alone
import test_runtime  # noqa: F401  its C++ runtime is its own
import test_documents  # noqa: F401  what the documents show and name

sys.exit(harness.main())
