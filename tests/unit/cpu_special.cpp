#include "unit/cpu_case.hpp"
