#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "ridge/base/error.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/train_run.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

struct Request {
  Request(CLI::App& command, const char* version) : run(command, {.version = version}) {}

  RunRequest run;
  KeepRequest keep;
  bool print_config = false;
};

std::string footer(std::string_view command) {
  return fmt::format(R"(Examples:
  {0} --batch-size 8 --seq-len 128 --num-steps 20
  {0} --data book.txt --num-steps 500 --learning-rate 1e-3 --eval-every 100
  {0} --num-steps 1000 --save-every 100 --output-dir run1
  {0} --resume run1/checkpoint.safetensors --num-steps 2000
  {0} --hidden-dim 512 --n-layers 8 --dtype bf16 --flops
  {0} --network resnet18 --data flowers/ --num-steps 500 --eval-every 100
A flag may be written with underscores; --config takes the same names as keys. A folder of images
has a folder of PNG or JPEG files for each class.)",
                     command);
}

void configure(CLI::App& command, std::string_view name, const char* version, Action& action) {
  const auto request = std::make_shared<Request>(command, version);
  command.add_flag("--print-config", request->print_config, "Print the resolved options and exit")
      ->group("Output");
  add_keep_flags(command, request->keep);
  command.footer(footer(name));
  command.callback([request, &action] {
    action = [request] {
      const RunOptions options = request->run.options([](RunOptions& o) {
        if (o.mode != "training")
          throw UsageError("ridge train trains: for --mode {} there is ridge bench", o.mode);
      });
      if (!request->print_config) return train(options, *open_device(options), {}, &request->keep);
      const std::string json = to_json(options);
      Terminal().lines(json);
      return 0;
    };
  });
}

}  // namespace

void add_train_command(CLI::App& program, Action& action) {
  configure(*program.add_subcommand("train", "Train a model"), "ridge train", "", action);
}

void configure_as_train(CLI::App& program, const char* version, Action& action) {
  configure(program, program.get_name(), version, action);
}

}  // namespace ridge
