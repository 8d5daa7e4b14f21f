#pragma once

#include "tests/simt/language.h"  // has what there is of halves
