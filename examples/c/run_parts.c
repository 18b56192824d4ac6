/* Runs prepare, experts and finalize as parts compiled alone, on two ranks that
 * are threads of this process, and prints the output of both, one row per
 * token. Build instructions: docs/use/c-api.md, with -lpthread.
 *
 *   ./a.out parts 5
 *
 * The folder has the parts: prepare.mlir, experts-0.json and experts-1.json,
 * which have half of the experts each, and finalize.mlir. */
#include "moejit/moejit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2 };

static const char *folder;
static int64_t tokens; /* of each rank */
static moert_device *device;
static moert_communicator *communicators[RANKS];
static float *outputs[RANKS];
static int64_t width;

static void check(moert_status *status) {
  if (!status)
    return;
  fprintf(stderr, "run_parts: %s\n", moert_status_message(status));
  _Exit(1); /* both threads may be here */
}

/* Compiles a part for the CPU. */
static moert_layer *load(moejit_compiler *compiler, const char *name) {
  char path[4096];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  moejit_source source = {sizeof(source), path, NULL, 0, 0};
  moert_layer *layer;
  check(moejit_load_layer(compiler, &source, device, NULL, &layer, NULL));
  return layer;
}

static const moert_tensor_info *find(moert_layer *layer, const char *name) {
  for (int i = 0; i < moert_layer_num_tensors(layer); ++i)
    if (!strcmp(moert_layer_tensor(layer, i)->name, name))
      return moert_layer_tensor(layer, i);
  fprintf(stderr, "run_parts: a part has no tensor '%s'\n", name);
  _Exit(1);
}

/* Elements in the largest call. */
static int64_t count(moert_layer *layer, const char *name) {
  const moert_tensor_info *info = find(layer, name);
  int64_t elements = 1;
  for (int d = 0; d < info->rank; ++d)
    elements *= info->shape[d];
  return elements;
}

/* Binds new memory to the tensor of this name, and returns it. */
static void *bind(moert_layer *layer, const char *name) {
  const moert_tensor_info *info = find(layer, name);
  void *data; /* of f32 or i32 */
  check(moert_device_allocate(device, (size_t)count(layer, name) * 4, &data));
  moert_tensor tensor = {name, info->dtype, data, info->rank, info->shape, 0};
  check(moert_layer_bind(layer, &tensor));
  return data;
}

/* Binds the output of a part to the input of the next, which must fit it. */
static void connect(moert_layer *from, const char *output, moert_layer *to,
                    const char *input) {
  const moert_tensor_info *info = find(from, output);
  moert_tensor tensor = {input,      info->dtype, bind(from, output),
                         info->rank, info->shape, 0};
  check(moert_layer_bind(to, &tensor));
}

/* Numbers that depend on the seed. */
static void fill(float *data, int64_t count, uint32_t state) {
  for (int64_t k = 0; k < count; ++k) {
    state = state * 1664525u + 1013904223u;
    data[k] = (float)(state >> 16) / 65536.0f - 0.5f;
  }
}

static void *run_rank(void *number) {
  int rank = *(int *)number;
  char name[32];
  snprintf(name, sizeof(name), "experts-%d.json", rank);
  moejit_compiler *compiler;
  check(moejit_compiler_create(NULL, &compiler));
  moert_layer *prepare = load(compiler, "prepare.mlir");
  moert_layer *experts = load(compiler, name);
  moert_layer *finalize = load(compiler, "finalize.mlir");

  /* The rank's tokens, and what all ranks have sent. */
  float *rows = bind(prepare, "hidden_states");
  int32_t *ids = bind(prepare, "topk_ids");
  float *weights = bind(prepare, "topk_weights");
  fill(rows, count(prepare, "hidden_states"), 10 + (uint32_t)rank);
  fill(weights, count(prepare, "topk_weights"), 20 + (uint32_t)rank);
  for (int64_t i = 0, all = count(prepare, "topk_ids"); i < all; ++i)
    ids[i] = (int32_t)((i * 3 + rank) % 4);
  connect(prepare, "all_rows", experts, "hidden_states");
  connect(prepare, "all_ids", experts, "topk_ids");
  connect(prepare, "all_weights", experts, "topk_weights");

  fill(bind(experts, "experts.w13"), count(experts, "experts.w13"),
       30 + (uint32_t)rank);
  fill(bind(experts, "experts.w2"), count(experts, "experts.w2"),
       40 + (uint32_t)rank);
  connect(experts, "output", finalize, "partial");
  outputs[rank] = bind(finalize, "output");
  if (rank == 0)
    width = find(finalize, "output")->shape[1];
  check(moert_layer_prepare_weights(experts, NULL));

  /* Both ranks call these, and wait for each other in them. */
  check(moert_layer_use_communicator(prepare, communicators[rank]));
  check(moert_layer_use_communicator(finalize, communicators[rank]));
  check(moert_layer_run(prepare, tokens, MOERT_LAYER_STREAM, NULL, 0));
  check(moert_layer_run(experts, RANKS * tokens, MOERT_LAYER_STREAM, NULL, 0));
  check(moert_layer_run(finalize, tokens, MOERT_LAYER_STREAM, NULL, 0));
  moert_layer_free(finalize);
  moert_layer_free(experts);
  moert_layer_free(prepare);
  moejit_compiler_free(compiler);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 3)
    return fprintf(stderr, "usage: run_parts folder tokens\n"), 2;
  folder = argv[1];
  tokens = atoll(argv[2]);
  moert_communicator_options options = {sizeof(options), RANKS, 1, 20};
  check(moejit_device_create_host(0, &device));
  check(moert_communicator_create_local(&options, device, communicators));
  pthread_t threads[RANKS];
  int numbers[RANKS] = {0, 1};
  for (int rank = 0; rank < RANKS; ++rank)
    pthread_create(&threads[rank], NULL, run_rank, &numbers[rank]);
  for (int rank = 0; rank < RANKS; ++rank)
    pthread_join(threads[rank], NULL);
  for (int rank = 0; rank < RANKS; ++rank)
    for (int64_t i = 0; i < tokens * width; ++i)
      printf("%.6g%c", outputs[rank][i], (i + 1) % width ? ' ' : '\n');
  for (int rank = 0; rank < RANKS; ++rank)
    moert_communicator_free(communicators[rank]);
  moert_device_free(device); /* and its memory */
  return 0;
}
