#include <fmt/format.h>

#include <memory>
#include <string>

#include "ridge/base/error.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/terminal.h"
#include "ridge/session/hf.h"

namespace ridge {
namespace {

struct ExportRequest {
  std::string checkpoint;
  std::string folder;
};

int export_model(const ExportRequest& request) {
  if (request.checkpoint.empty()) throw UsageError("export what? give --checkpoint FILE");
  if (request.folder.empty()) throw UsageError("export to where? give --hf DIR");
  export_hf(request.checkpoint, request.folder);
  Terminal().line(fmt::format("Wrote config.json and model.safetensors to {}", request.folder));
  return 0;
}

}  // namespace

void add_export_command(Command program, Action& action) {
  const Command command = program.add_subcommand("export", "Export a checkpoint to Hugging Face");
  const auto request = std::make_shared<ExportRequest>();
  command.add_option("--checkpoint", request->checkpoint, "Export this checkpoint of ridge train")
      .type_name("FILE");
  command
      .add_option("--hf", request->folder,
                  "Write files for Hugging Face's LlamaForCausalLM to this folder")
      .type_name("DIR");
  command.footer(R"(Example:
  ridge export --checkpoint output/checkpoint.safetensors --hf my-llama
  python3 -c 'from transformers import LlamaForCausalLM as M; M.from_pretrained("my-llama")')");
  command.callback([request, &action] { action = [request] { return export_model(*request); }; });
}

}  // namespace ridge
