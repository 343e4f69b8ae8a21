#!/usr/bin/env bash
# ./dev style: runs the checks of .pre-commit-config.yaml on every file, and checks the files for CI by their schemas.
set -euo pipefail
source scripts/common.sh

need python
python=build/style-env/bin/python
virtual_environment build/style-env
"$python" -m pip install --quiet --disable-pip-version-check pre-commit==4.7.0 check-jsonschema==0.39.0
PATH=$PWD/build/style-env/bin:$PATH pre-commit run --all-files "$@"
build/style-env/bin/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
build/style-env/bin/check-jsonschema --builtin-schema vendor.gitlab-ci --data-transform gitlab-ci .gitlab-ci.yml
