#pragma once

#include <functional>

#include "ridge/cli/command.h"

namespace ridge {

// What a command will do once the whole command line has been understood; the exit code of the
// program. Errors are thrown: main() makes each of them one line.
using Action = std::function<int()>;

// Each adds its subcommand to the program and, if that is the one chosen, sets `action`. Arguments
// that nobody knows are refused by main().
void add_train_command(Command program, Action& action);
void add_eval_command(Command program, Action& action);
void add_plan_command(Command program, Action& action);
void add_passes_command(Command program, Action& action);
void add_verify_command(Command program, Action& action);
void add_ablate_command(Command program, Action& action);
void add_compare_command(Command program, Action& action);
void add_export_command(Command program, Action& action);
void add_bench_command(Command program, Action& action);
void add_ops_command(Command program, Action& action);
void add_roofline_command(Command program, Action& action);
void add_speed_of_light_command(Command program, Action& action);
void add_report_command(Command program, Action& action);
void add_trace_command(Command program, Action& action);
// These go below `ridge trace`.
void add_trace_diff(Command trace_command, Action& action);
void add_trace_export(Command trace_command, Action& action);
void add_trace_record(Command trace_command, Action& action);
void add_exercise_command(Command program, Action& action);
void add_runs_command(Command program, Action& action);
void add_store_command(Command program, Action& action);
void add_gate_command(Command program, Action& action);
void add_study_command(Command program, Action& action);
void add_workshop_study_command(Command program, Action& action);
void add_dashboard_command(Command program, Action& action);
void add_doctor_command(Command program, Action& action);
void add_about_command(Command program, Action& action);
void add_completion_command(Command program, Action& action);

int about();  // an action: prints the version of the program and what it runs on

// Exit codes of the commands that judge a change (ridge gate, --fail-above): it is slower, or what
// was measured does not decide it.
inline constexpr int exit_regression = 1, exit_undecided = 3;

}  // namespace ridge
