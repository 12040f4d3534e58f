#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Suite `source`: who includes whom, and the form of all text.

    python3 tests/source/run.py [--test-case='clang-format*']
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "abi"))
from harness import main  # noqa: E402
import floors  # noqa: E402, F401
import style  # noqa: E402, F401

sys.exit(main())
