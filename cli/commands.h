// The commands of hinge. Each adds itself, with its options and what it does, below `parent`.
#pragma once

#include "cli/command.h"

namespace hinge::cli {

void add_doctor(Command parent);
void add_train(Command parent);
void add_launch(Command parent);
void add_sweep(Command parent);
void add_runs(Command parent);
void add_report(Command parent);
void add_watch(Command parent);
void add_eval(Command parent);
void add_predict(Command parent);
void add_attend(Command parent);
void add_probe(Command parent);
void add_weights(Command parent);
void add_translate(Command parent);
void add_analyze(Command parent);
void add_score(Command parent);
void add_data(Command parent);
void add_bench(Command parent);
void add_bench_attention(Command parent);
void add_bench_gemm(Command parent);
void add_bench_vit(Command parent);
void add_bench_translate(Command parent);
void add_bench_sequence(Command parent);
void add_completion(Command parent);
void add_manual(Command parent);

}  // namespace hinge::cli
