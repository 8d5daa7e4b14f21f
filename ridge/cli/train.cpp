#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "ridge/base/error.h"
#include "ridge/base/ranges.h"
#include "ridge/cli/command.h"
#include "ridge/cli/commands.h"
#include "ridge/cli/flags.h"
#include "ridge/cli/ranks.h"
#include "ridge/cli/run_request.h"
#include "ridge/cli/terminal.h"
#include "ridge/cli/train_run.h"
#include "ridge/session/devices.h"

namespace ridge {
namespace {

struct TrainRequest {
  explicit TrainRequest(Command command) : run(command) {}

  RunRequest run;
  KeepRequest keep;
  std::string json_file;
  std::string rocm_words;  // see rocm_flag
  bool print_config = false;
  std::int64_t restarts = 0;
};

constexpr const char* train_footer = R"(Examples:
  ridge train --batch-size 8 --seq-len 128 --num-steps 20
  ridge train --data book.txt --num-steps 500 --learning-rate 1e-3 --eval-every 100
  ridge train --num-steps 1000 --save-every 100 --output-dir run1
  ridge train --resume run1/checkpoint.safetensors --num-steps 2000
  ridge train --hidden-dim 512 --n-layers 8 --dtype bf16 --flops
  ridge train --network resnet18 --data flowers/ --num-steps 500 --eval-every 100
  ridge train --ranks 4 --batch-size 32 --num-steps 1000 --save-every 100 --restarts 3
  ridge train --gpus 2 --version v4 --dtype bf16 --batch-size 32 --zero 1
A flag may be written with underscores; --config takes the same names as keys. A folder of images
has a folder of PNG or JPEG files for each class. With --ranks N, as many processes share each batch,
with --gpus N on a GPU each; torchrun, mpirun and srun may start them too.)";

int run(const RunOptions& options, const TrainRequest& request) {
  const RocmProfile rocm = rocm_profile(request.rocm_words);
  if (const std::optional<Rank> rank = one_of_several())
    return run_as_rank(*rank, options, [&](const RunOptions& of_rank, Device& device) {
      return train(of_rank, device, {}, &request.keep, device.rank() == 0 ? request.json_file : "",
                   rocm);
    });
  if (options.ranks == 1)
    return train(options, *open_device(options), {}, &request.keep, request.json_file, rocm);
  return run_ranks(options, static_cast<int>(request.restarts));
}

}  // namespace

void add_train_command(Command program, Action& action) {
  const Command command = program.add_subcommand("train", "Train a model");
  const auto request = std::make_shared<TrainRequest>(command);
  command.add_flag("--print-config", request->print_config, "Print the resolved options and exit")
      .group("Output");
  add_value(command, "--export-json", request->json_file, "Write the results to this JSON file")
      .type_name("FILE")
      .group("Output");
  add_keep_flags(command, request->keep);
  add_rocm_flag(command, request->rocm_words);
  add_value(command, "--restarts", request->restarts,
            "Start the ranks again so often, from the last checkpoint, where one fails")
      .group("Machine");
  command.footer(train_footer);
  command.callback([request, &action] {
    action = [request] {
      check_range("restarts", request->restarts, 0, 1'000'000);
      const RunOptions options = request->run.options([](RunOptions& o) {
        if (o.mode != "training")
          throw UsageError("ridge train trains: for --mode {} there is ridge bench", o.mode);
      });
      if (!request->print_config) return run(options, *request);
      const std::string json = to_json(options);
      Terminal().lines(json);
      return 0;
    };
  });
}

}  // namespace ridge
