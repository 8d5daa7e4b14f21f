// A profiler that listens to a process from inside, as far as ranges of NVTX go: NVTX loads it
// where NVTX_INJECTION64_PATH names it. Writes the tree of ranges to the file that
// NVTX_LISTENER_OUTPUT names, a line a range, two spaces deeper than the range around it.

#include <nvtx3/nvToolsExt.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <string>

namespace {

std::deque<std::string> registered;  // whose elements' addresses are the handles of strings
int depth = 0;

std::FILE* output() {
  static std::FILE* const file = std::fopen(std::getenv("NVTX_LISTENER_OUTPUT"), "w");
  return file;
}

nvtxStringHandle_t take_string(nvtxDomainHandle_t, const char* text) {
  registered.emplace_back(text);
  return reinterpret_cast<nvtxStringHandle_t>(&registered.back());
}

nvtxDomainHandle_t make_domain(const char* name) {
  std::fprintf(output(), "domain %s\n", name);
  return reinterpret_cast<nvtxDomainHandle_t>(&registered);
}

int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* range) {
  const char* const name =
      range->messageType == NVTX_MESSAGE_TYPE_REGISTERED
          ? reinterpret_cast<const std::string*>(range->message.registered)->c_str()
          : range->message.ascii;
  std::fprintf(output(), "%*s%s\n", 2 * depth, "", name);
  return depth++;
}

int pop(nvtxDomainHandle_t) {
  if (depth == 0) std::fprintf(output(), "nothing to end\n");
  return --depth;
}

template <class Function>
void listen(NvtxFunctionTable table, NvtxCallbackIdCore2 id, Function function) {
  *table[id] = reinterpret_cast<NvtxFunctionPointer>(function);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t table_of) {
  const auto* const tables =
      static_cast<const NvtxExportTableCallbacks*>(table_of(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (!tables || !tables->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  listen(table, NVTX_CBID_CORE2_DomainCreateA, make_domain);
  listen(table, NVTX_CBID_CORE2_DomainRegisterStringA, take_string);
  listen(table, NVTX_CBID_CORE2_DomainRangePushEx, push);
  listen(table, NVTX_CBID_CORE2_DomainRangePop, pop);
  return 1;
}
