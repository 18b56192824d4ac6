/*===- moejit.h - the compiler for C ----------------------------*- C -*-===*\
|*                                                                            *|
|* Part of moec, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef MOEJIT_MOEJIT_H
#define MOEJIT_MOEJIT_H

#include "moert/moert.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * From the description of a layer to a layer that runs:
 *
 *   moejit_compiler *compiler;  moert_device *device;  moert_layer *layer;
 *   moejit_source source = {sizeof(source), "config.json"};
 *   moejit_compiler_create(NULL, &compiler);
 *   moert_device_create_cuda(0, &device);
 *   moejit_load_layer(compiler, &source, device, NULL, &layer, NULL);
 *   moert_layer_bind(layer, ...);                   on as moert.h says
 *
 * The functions of moert.h are in the same library; handles of another library
 * that has them too (libmoert.so) are not for these functions.
 *
 * Statuses, handles and out-parameters are as in moert.h. The message of a
 * status about a description has lines of text, with file, line, column and a
 * caret under what is wrong.
 *
 * Threads. Any number of threads may use one compiler at once. Each call has
 * threads of its own for the kernels.
 *
 * A GPU is needed to load a layer for it, not to compile one. Layers for the
 * CPU are compiled where they run: moejit_load_layer() takes a device of
 * moejit_device_create_host() too.
 */

/* Raised whenever a call or a structure changes. */
#define MOEJIT_API_VERSION 8

/* The MOEJIT_API_VERSION that the library was built with. */
MOERT_API int moejit_api_version(void);
/* The version of the compiler and its commit: "0.1.0 (commit 0123456789ab)".
 * Built outside of a git repository it has no commit. */
MOERT_API const char *moejit_version(void);

/*===----------------------------------------------------------------------===*\
 * Compilers
\*===----------------------------------------------------------------------===*/

/* What a message is about. */
typedef enum moejit_severity {
  /* A stage of a compilation is done, and what it took. */
  MOEJIT_PROGRESS = 0,
  /* Something is wrong, and the call goes on. */
  MOEJIT_WARNING = 1,
  /* How much of a compilation or a load is done, of how much: "3/14". */
  MOEJIT_STEP = 2
} moejit_severity;

/* Called in the threads that call the compiler. `text` lives as long as the
 * call. */
typedef void (*moejit_message_fn)(void *user, moejit_severity severity,
                                  const char *text);

/* How a compiler works; all 0 but for `size` is as without options. */
typedef struct moejit_options {
  /* sizeof(moejit_options), so that later versions may add fields. */
  size_t size;
  /* "sm_80", "sm_90a", "sm_100a", or the architecture of a GPU ("sm_89"), for
   * the best of these that it runs. NULL: for moejit_load_layer() the best one
   * that the device runs. */
  const char *target;
  /* The part that configs are chosen for, as in "h100-sxm"
   * (docs/design/cost-model.md). NULL: for moejit_load_layer() the one that the
   * device is, else the default of the target. */
  const char *device_part;
  /* The folder of compiled layers (docs/use/c-api.md). NULL: $MOEC_CACHE_DIR,
   * else $XDG_CACHE_HOME/moec, else ~/.cache/moec. */
  const char *cache_directory;
  /* Bytes that the folder may have; 0: 1 GiB. */
  uint64_t cache_bytes;
  /* Not 0: compiled layers are neither kept nor looked for. */
  int no_cache;
  /* Threads that compile the kernels of a layer; 0: one per core that the
   * process may use. */
  unsigned threads;
  /* The assembler. NULL: $MOEC_PTXAS, else that of the PATH, else that of
   * /usr/local/cuda. Where there is none, the driver assembles PTX when the
   * layer is loaded. */
  const char *ptxas;
  /* Not 0: leave the PTX to the driver though there is a ptxas. */
  int no_ptxas;
  /* Configs of kernels instead of what would be chosen, each as moe-compile's
   * --config has it (docs/design/cost-model.md):
   * "experts_out@1-64:block_m=16 block_n=64".
   * They are for every layer of the compiler. */
  const char *const *configs;
  /* How many there are. */
  size_t num_configs;
  /* Gets messages; NULL: warnings go to the error stream. */
  moejit_message_fn message;
  /* The `user` of its calls. */
  void *message_user;
} moejit_options;

/* Threads: any number may use it at once. Contexts: none needed, but for
 * layers of a device. Lifetime: layers keep nothing of it, so that it may be
 * freed before them. */
typedef struct moejit_compiler moejit_compiler;

/* `options` may be NULL, and is read before the call returns. Trouble with the
 * cache is a warning: layers are compiled without it then. */
MOERT_API moert_status *moejit_compiler_create(const moejit_options *options,
                                               moejit_compiler **compiler);
/* Layers that it made go on. NULL is accepted. */
MOERT_API void moejit_compiler_free(moejit_compiler *compiler);

/*===----------------------------------------------------------------------===*\
 * Layers
\*===----------------------------------------------------------------------===*/

/* The description of a layer: a model's config.json, a folder that has one, or
 * a spec (docs/use/layers.md), whose name ends with ".json"; a model's file,
 * whose name ends with ".gguf"; or IR, whose name ends with ".mlir". */
typedef struct moejit_source {
  /* sizeof(moejit_source), so that later versions may add fields. */
  size_t size;
  /* The file. With `text`: what messages call it, and its kind. */
  const char *path;
  /* The description itself; NULL: it is read from the file. */
  const char *text;
  /* The length of `text`. */
  size_t text_bytes;
  /* The most tokens of a call, in place of what a description in JSON says; 0:
   * as it says. */
  int64_t max_tokens;
  /* So many experts in place of the description's; 0: as it says. */
  int64_t num_experts;
  /* "gate", "logits" or "ids", what a call brings of the routing; NULL: as the
   * description says. */
  const char *entry;
  /* Not 0: a call brings the number of its valid tokens. */
  int num_valid_tokens;
  /* The decoder layer of a model's configuration, counted from 0; NULL: the
   * first one that has experts. */
  const int64_t *layer;
  /* An object `parallel` in JSON (docs/use/parallel.md), which says the ranks
   * of the layer in place of the description; NULL: as it says. */
  const char *parallel;
  /* Keys of a model's config.json to ignore that are refused although they do
   * not concern the layer, as moe-compile's --ignore-field has them:
   * "text_config.route_scale". */
  const char *const *ignored_fields;
  /* How many there are. */
  size_t num_ignored_fields;
  /* Not 0: the bits of a row must not depend on the other rows of a call. */
  int batch_invariant;
  /* Not 0: weights of a checkpoint that have more digits than the layer's
   * dtype are rounded when they are loaded, not refused. */
  int round_weights;
  /* The part of a decoder layer whose kinds of tokens have routers and experts
   * of their own ("vision"); NULL: that of text. */
  const char *part;
} moejit_source;

/* How a layer came about. */
typedef struct moejit_report {
  /* Not 0: the layer was compiled before. */
  int from_cache;
  /* Wall-clock time until the layer was compiled. */
  double seconds;
} moejit_report;

/* Compiles for the target of the compiler, which has to have one. `data` gets
 * the contents of a .moepkg, for moert_package_from_memory() or a file; they
 * are freed by moejit_free(). `report` may be NULL. */
MOERT_API moert_status *moejit_compile(moejit_compiler *compiler,
                                       const moejit_source *source, void **data,
                                       size_t *size, moejit_report *report);
/* Frees what a call here gave as data or text. NULL is accepted. */
MOERT_API void moejit_free(void *data);

/* The CPU of this process as a device, for moejit_load_layer(): a package has
 * no kernels for it. `threads` counts the thread that runs a layer; 0:
 * $MOEC_NUM_THREADS, else $OMP_NUM_THREADS, else one per core that the process
 * may use, within the CPU quota of its control group. Memory of the process is
 * memory of the device, and moert_layer_run() takes MOERT_LAYER_STREAM alone
 * and returns when the run is complete. */
MOERT_API moert_status *moejit_device_create_host(int threads,
                                                  moert_device **device);

/* Changes the number of threads of a device of moejit_device_create_host() for
 * later runs; 0 as there. */
MOERT_API moert_status *moejit_device_set_threads(moert_device *device,
                                                  int threads);
/* Their number; 0 for another device and for NULL. */
MOERT_API int moejit_device_threads(const moert_device *device);

/* Compiles for the device and loads. `options` and `report` may be NULL. Layers
 * for the host are not cached. */
MOERT_API moert_status *
moejit_load_layer(moejit_compiler *compiler, const moejit_source *source,
                  moert_device *device, const moert_layer_options *options,
                  moert_layer **layer, moejit_report *report);

/* Fills the weights of a layer from a checkpoint, a folder or a file of
 * safetensors, under the names that its model gives them or the canonical ones
 * (docs/use/importing.md), in memory of the device that belongs to the layer
 * and its clones, and binds them: one expert after the other, so that no more
 * than one is in host memory beside what is on a GPU. `decoder_layer`, counted
 * from 0, is the layer of the checkpoint; NULL: the one that the source of the
 * layer was. `rank`, of a layer of several ranks, is the one whose part is
 * read; NULL: that of its communicator. Elements are converted where that is
 * exact. `message`, which may be NULL, is called with `user` and MOEJIT_STEP,
 * in bytes, after each expert of a tensor. Weights that were there before go
 * when all are read. */
MOERT_API moert_status *
moejit_layer_load_weights(moert_layer *layer, const char *path,
                          const int64_t *decoder_layer, const int64_t *rank,
                          moejit_message_fn message, void *user);

/* Fills the weights of a layer with pseudo-random values, equal for equal
 * `seed`, in memory of the device that belongs to the layer, and binds them:
 * for benchmarks of a layer without a checkpoint. Every intermediate is of the
 * order of one. */
MOERT_API moert_status *moejit_layer_generate_weights(moert_layer *layer,
                                                      uint64_t seed);

/* A tensor in memory, contiguous, under a name of its checkpoint. */
typedef struct moejit_named_tensor {
  /* "model.layers.3.mlp.experts.0.up_proj.weight", or a canonical name. */
  const char *name;
  /* The name of an element type in moert.h: "bf16", "f8e4m3", "u8", "i64". */
  const char *dtype;
  /* The first element. */
  const void *data;
  /* The number of dimensions. */
  int rank;
  /* Sizes of the dimensions, in elements. */
  const int64_t *shape;
  /* Whether `data` is host memory; 0: memory of the layer's device. */
  int on_host;
} moejit_named_tensor;

/* The tensors that a call has. */
typedef enum moejit_tensor_set {
  /* All of the layer. */
  MOEJIT_TENSORS_ALL = 0,
  /* Some of them. */
  MOEJIT_TENSORS_SOME = 1,
  /* The rest, of which earlier calls had some; may be none. */
  MOEJIT_TENSORS_LAST = 2,
  /* None: those of earlier calls that are not complete are discarded. */
  MOEJIT_TENSORS_NONE = 3
} moejit_tensor_set;

/* Options of moejit_layer_load_tensors(). */
typedef struct moejit_tensor_options {
  /* sizeof(moejit_tensor_options). */
  size_t size;
  /* The tensors of this call among those of the layer. */
  moejit_tensor_set set;
  /* As for moejit_layer_load_weights(). */
  const int64_t *decoder_layer;
  /* As for moejit_layer_load_weights(). */
  const int64_t *rank;
  /* The stream that wrote the tensors, for which the call waits;
   * MOERT_LAYER_STREAM: they are complete. An error if it is captured. */
  void *stream;
  /* Receives the progress of a first load in bytes, as MOEJIT_STEP; may be
   * NULL. */
  moejit_message_fn message;
  /* The first argument of `message`. */
  void *user;
  /* Receives whether the layer has all weights of this call and of earlier
   * ones; may be NULL. */
  int *is_complete;
} moejit_tensor_options;

/* Loads weights from memory, as moejit_layer_load_weights() does from files,
 * under the same names, in any order. Memory of the caller may be reused after
 * the call. Tensors of other modules of the model are ignored.
 *
 * A layer without weights of its own takes them into new memory and binds it
 * when all have come: a tensor of an expert is copied to its place at once; one
 * that depends on others (act-order, nested scales) is kept until these are
 * there, and the router and shared experts until the end.
 *
 * Weights that the layer has loaded before are overwritten where they are, so
 * that clones and captured graphs use the new ones; prepared copies are made
 * again. Runs and replays on other streams must be complete. All tensors of a
 * call are checked before the first is written: after an error all weights are
 * the old ones. Tensors on the layer's GPU that need no conversion are copied
 * there, and their values are not examined. Some tensors of a layer that
 * prepares weights in place are refused once it is prepared. */
MOERT_API moert_status *
moejit_layer_load_tensors(moert_layer *layer,
                          const moejit_named_tensor *tensors, int count,
                          const moejit_tensor_options *options);

/* Whether all weights are bound to memory that the layer owns, so that
 * moejit_layer_load_tensors() overwrites them there. */
MOERT_API moert_status *moejit_layer_owns_weights(moert_layer *layer,
                                                  int *owns);

/* Whether moejit_layer_load_tensors() has a use for a tensor, as far as its
 * name tells, so that a caller need not read those of a whole model. */
MOERT_API moert_status *moejit_layer_selects(moert_layer *layer,
                                             const char *name,
                                             const int64_t *decoder_layer,
                                             int *selected);

/* What moejit_print() prints. */
typedef enum moejit_form {
  /* The layer as JSON, with every default resolved. */
  MOEJIT_SPEC = 0,
  /* IR of level `moe` (docs/design/architecture.md): what is computed. */
  MOEJIT_MOE = 1,
  /* IR of level `plan`: launches over buffers. */
  MOEJIT_PLAN = 2,
  /* IR of level `tile`: kernels of coarse ops. */
  MOEJIT_TILE = 3,
  /* Code of the kernels: LLVM IR. */
  MOEJIT_LLVM = 4,
  /* Code of the kernels: PTX, of a GPU alone. */
  MOEJIT_PTX = 5,
  /* What was chosen, and what it is expected to take, in at most 40 lines. */
  MOEJIT_EXPLANATION = 6,
  /* All of it, with what was not chosen. */
  MOEJIT_FULL_EXPLANATION = 7
} moejit_form;

/* The layer as text, which moejit_free() frees: as it is compiled for the
 * device, or where that is NULL for the target of the compiler. */
MOERT_API moert_status *moejit_print(moejit_compiler *compiler,
                                     const moejit_source *source,
                                     const moert_device *device,
                                     moejit_form form, char **text);

/* The layer as a page in HTML that needs nothing else, which moejit_free()
 * frees: the layer drawn, times, a roofline, the plan with streams and
 * workspace, kernels, what was not chosen, and every level. `results`, in JSON
 * as moe-bench --json writes it, has times that were measured of this layer
 * alone; NULL: there are none. The device is as for moejit_print(). */
MOERT_API moert_status *moejit_print_report(moejit_compiler *compiler,
                                            const moejit_source *source,
                                            const moert_device *device,
                                            const char *results, char **page);

/* What the layer is expected to take, as a JSON object that moejit_free()
 * frees, by the cost model of docs/design/cost-model.md, where its fields are:
 * the GPU, bytes of weights, and for each count of tokens the time, its bound,
 * the floor, bytes, operations and workspace. The GPU is the device; where that
 * is NULL it is the compiler's device_part or target. `tokens` counts those of
 * all ranks along dp; `num_tokens` 0: 1, 8, 64, 1024 and 4096. */
MOERT_API moert_status *
moejit_print_expectation(moejit_compiler *compiler, const moejit_source *source,
                         const moert_device *device, const int64_t *tokens,
                         size_t num_tokens, char **json);

/* The decoder layers of a model that have experts, counted from 0 and in
 * order; moejit_free() frees `layers`. The source is a model's config.json, its
 * folder or a GGUF file. */
MOERT_API moert_status *moejit_find_layers(const moejit_source *source,
                                           int64_t **layers,
                                           size_t *num_layers);

/* Bytes of a model's files: those of the layers that have experts, and of all
 * tensors. The source is the model's folder or a GGUF file. */
MOERT_API moert_status *moejit_measure_weights(const moejit_source *source,
                                               int64_t *layer_bytes,
                                               int64_t *all_bytes);

/* Times `repeat` runs of a layer on `tokens` tokens, after one that is not
 * timed: `seconds`, of that size, in ascending order. The runs are those of a
 * clone whose inputs are pseudo-random and equal for equal `seed`; on a GPU
 * each is a replay of a graph, timed by the device's clock, one behind the
 * other, on the host each is timed by itself. Weights are those that are bound,
 * and stay warm. */
MOERT_API moert_status *moejit_layer_benchmark(moert_layer *layer,
                                               int64_t tokens, int repeat,
                                               uint64_t seed, double *seconds);

/* How runs of a layer are compared with the reference; all 0 except `size` is
 * the default. */
typedef struct moejit_verify_options {
  /* sizeof(moejit_verify_options), so that later versions may add fields. */
  size_t size;
  /* Runs `every`, 2 * `every`, ... are compared; 0: as $MOEC_VERIFY says, or
   * none. */
  int64_t every;
  /* Compared rows of such a run; 0: 1. */
  int64_t rows;
  /* Decides which rows are compared. */
  uint64_t seed;
  /* The folder for what reproduces wrong rows. NULL: $MOEC_VERIFY_DIR, else
   * moec-verify in the folder of temporary files. */
  const char *folder;
  /* Not 0: runs that are captured into graphs are neither counted nor compared.
   * 0: they are refused. */
  int skip_captured;
} moejit_verify_options;

/* Compares sampled rows of some runs with the float64 reference over the bound
 * weights, which are kept from here on (docs/howto/debug.md). A wrong row is
 * told on the error stream, and by the next moert_layer_synchronize() or
 * moert_layer_synchronize_stream(). On a GPU comparisons are at work for at
 * most 250 / every of the time; a run due before is left out. Clones made
 * afterwards are compared too. MOERT_UNAVAILABLE for a layer that cannot be
 * compared; if only $MOEC_VERIFY asks for it, that is a warning. `options` may
 * be NULL. */
MOERT_API moert_status *
moejit_layer_verify(moert_layer *layer, const moejit_verify_options *options);
/* Not 0: runs of the layer are compared. */
MOERT_API int moejit_layer_is_verified(const moert_layer *layer);

#ifdef __cplusplus
}
#endif

#endif /* MOEJIT_MOEJIT_H */
