/*===- moert.h - the runtime for C ------------------------------*- C -*-===*\
|*                                                                            *|
|* Part of moec, under the Apache License v2.0 with LLVM Exceptions.          *|
|* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception                    *|
|*                                                                            *|
\*===----------------------------------------------------------------------===*/

#ifndef MOERT_MOERT_H
#define MOERT_MOERT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define MOERT_API __attribute__((visibility("default")))
#else
#define MOERT_API
#endif

/* Running a layer:
 *
 *   moert_package *package;  moert_device *device;  moert_layer *layer;
 *   moert_package_open("layer.moepkg", &package);
 *   moert_device_create_cuda(0, &device);
 *   moert_layer_create(package, device, NULL, &layer);
 *   moert_layer_bind(layer, &weight);               all weights
 *   moert_layer_prepare_weights(layer, NULL);       once
 *   moert_layer_bind(layer, &hidden_states);        inputs and outputs
 *   moert_layer_run(layer, tokens, stream, workspace, bytes);
 *
 * Every call that can fail returns NULL for success, or a status that the
 * caller frees. The output of a failing call is set to NULL.
 *
 * Handles are opaque, and made and freed by the calls here. A function that
 * frees also accepts NULL. Rules for threads, contexts and lifetimes are stated
 * above each handle's type. No handle depends on the thread or context that
 * made it, and every call leaves the current context unchanged.
 *
 * A handle is freed by one thread when no other uses it. Memory of the caller's
 * (bound tensors, workspaces) and streams live until the runs that use them are
 * complete.
 *
 * moert.hpp wraps this API for C++. */

/* Raised with every change of a call or structure. */
#define MOERT_API_VERSION 9

/* The MOERT_API_VERSION that the library was built with. */
MOERT_API int moert_api_version(void);

/*===----------------------------------------------------------------------===*\
 * Status
\*===----------------------------------------------------------------------===*/

/* The kind of a failure. */
typedef enum moert_code {
  /* None. */
  MOERT_OK = 0,
  /* An argument, file or description is wrong. */
  MOERT_INVALID_ARGUMENT = 1,
  /* No file, tensor or kernel has the name. */
  MOERT_NOT_FOUND = 2,
  /* A number, for example of tokens or devices, is out of range. */
  MOERT_OUT_OF_RANGE = 3,
  /* There is not enough memory. */
  MOERT_RESOURCE_EXHAUSTED = 4,
  /* A driver, device, library, file or rank cannot be used, or a device lacks a
   * required feature. */
  MOERT_UNAVAILABLE = 5,
  /* An error inside the library or the driver. */
  MOERT_INTERNAL = 6
} moert_code;

/* Threads: read by any number. Contexts: none needed. Lifetime: until freed,
 * which may be after the handle that it came from. */
typedef struct moert_status moert_status;

/* Returns MOERT_OK for NULL. */
MOERT_API moert_code moert_status_code(const moert_status *status);
/* Names the call, the tensor or field, the value expected and found, and what
 * to change; "" for NULL. Lives as long as the status. */
MOERT_API const char *moert_status_message(const moert_status *status);
/* Accepts NULL, as all functions that free do. */
MOERT_API void moert_status_free(moert_status *status);

/*===----------------------------------------------------------------------===*\
 * Packages
\*===----------------------------------------------------------------------===*/

/* Threads: immutable, so any number may use it at once. Contexts: none needed.
 * Lifetime: may be freed before its layers, which keep what they need of it. */
typedef struct moert_package moert_package;

/* Reads and verifies a .moepkg. */
MOERT_API moert_status *moert_package_open(const char *path,
                                           moert_package **package);
/* Reads and verifies a package in memory, which is copied. */
MOERT_API moert_status *moert_package_from_memory(const void *data, size_t size,
                                                  moert_package **package);
/* Layers made from the package remain valid. */
MOERT_API void moert_package_free(moert_package *package);

/* The layer as JSON, "" if the package has none. Lives as long as the package.
 */
MOERT_API const char *moert_package_spec(const moert_package *package);

/*===----------------------------------------------------------------------===*\
 * Devices
\*===----------------------------------------------------------------------===*/

/* Threads: any call at any time, from any number. Contexts: a CUDA device
 * retains the primary context of its GPU, which the CUDA runtime and PyTorch
 * use too; each call makes it current for its duration. Lifetime: freed after
 * its layers and workspaces; frees remaining memory of moert_device_allocate().
 */
typedef struct moert_device moert_device;

/* GPU number `ordinal` in the driver's order. MOERT_UNAVAILABLE if there is no
 * driver or no GPU. */
MOERT_API moert_status *moert_device_create_cuda(int ordinal,
                                                 moert_device **device);
/* Frees memory of moert_device_allocate() too; layers and workspaces of the
 * device must be freed before. */
MOERT_API void moert_device_free(moert_device *device);

/* "cuda:0 (NVIDIA H200)", "host". Lives as long as the device. */
MOERT_API const char *moert_device_name(const moert_device *device);

/* Memory of the device, aligned to 256 bytes, for callers without an allocator.
 * 0 bytes give NULL. */
MOERT_API moert_status *moert_device_allocate(moert_device *device,
                                              size_t bytes, void **memory);
/* Frees memory of moert_device_allocate(). */
MOERT_API void moert_device_release(moert_device *device, void *memory);
/* Copies `bytes` from the caller's memory to the device's, complete on return.
 * Does not wait for work on streams. */
MOERT_API moert_status *moert_device_copy_in(moert_device *device, void *to,
                                             const void *from, size_t bytes);
/* Copies `bytes` from the device's memory to the caller's, complete on return.
 * Does not wait for work on streams. */
MOERT_API moert_status *moert_device_copy_out(moert_device *device, void *to,
                                              const void *from, size_t bytes);

/* Waits until the work given to `stream`, a stream as for moert_layer_run(), is
 * complete. On the host there is nothing to wait for: calls return when their
 * work is complete. */
MOERT_API moert_status *moert_device_synchronize(moert_device *device,
                                                 void *stream);

/* Called once, with an object that is no longer used, in any thread that calls
 * this library. */
typedef void (*moert_release_fn)(void *object);

/* Gives ownership of `object` to the graph that `stream` is being captured
 * into. After the graph and everything instantiated from it are destroyed, a
 * later call of this library, such as one that allocates or frees, releases the
 * object. A failing call releases it too. */
MOERT_API moert_status *moert_device_retain(moert_device *device, void *stream,
                                            void *object,
                                            moert_release_fn release);

/*===----------------------------------------------------------------------===*\
 * Layers
\*===----------------------------------------------------------------------===*/

/* Threads: one call at a time, from any thread; layers, clones included, are
 * independent of each other and may run at once. Contexts: those of its device;
 * streams are of the same primary context. Lifetime: freed before its device,
 * when its runs are complete. A clone may outlive the layer that it came from.
 */
typedef struct moert_layer moert_layer;

/* Options of a layer; all 0 except `size` is the default. */
typedef struct moert_layer_options {
  /* sizeof(moert_layer_options), so that later versions may add fields. */
  size_t size;
  /* Not 0: fill workspace and outputs with NaN before each run. */
  int poison;
} moert_layer_options;

/* Chooses the image for the device and loads it. `options` may be NULL. */
MOERT_API moert_status *moert_layer_create(const moert_package *package,
                                           moert_device *device,
                                           const moert_layer_options *options,
                                           moert_layer **layer);
/* A second layer for an overlapping micro-batch: it shares code, weights and
 * prepared weights, and has its own inputs, outputs and workspace. */
MOERT_API moert_status *moert_layer_clone(const moert_layer *layer,
                                          moert_layer **clone);
/* The layer's runs must be complete. Clones remain valid. */
MOERT_API void moert_layer_free(moert_layer *layer);

/* The role of a tensor in a layer. */
typedef enum moert_role {
  /* Read by every run. */
  MOERT_INPUT = 0,
  /* Bound once, and prepared before the first run. */
  MOERT_WEIGHT = 1,
  /* Written by every run. */
  MOERT_OUTPUT = 2,
  /* Made from weights when they are prepared, and read by runs. */
  MOERT_PREPARED = 3
} moert_role;

/* A tensor of a layer's interface. */
typedef struct moert_tensor_info {
  /* The name in docs/use/layers.md: "experts.w13". */
  const char *name;
  /* "bf16", "f32", "i32", ... */
  const char *dtype;
  /* Input, weight, output or prepared. */
  moert_role role;
  /* The number of dimensions. */
  int rank;
  /* The shape at max_tokens tokens. */
  const int64_t *shape;
  /* Not 0: the first dimension is smaller with fewer tokens. */
  int depends_on_tokens;
  /* Alignment of the address in bytes. */
  int64_t alignment;
  /* Not 0: may be bound with gaps between its rows. */
  int strided;
  /* Not 0: a weight that is prepared. Values written to it afterwards take
   * effect when the weights are prepared again. */
  int prepared;
  /* Not 0, for a weight: runs read its memory. 0 if they read only tensors
   * prepared from it. */
  int read_by_runs;
} moert_tensor_info;

/* The maximum number of tokens of a run. For a layer of several ranks, token
 * counts are per rank, here and in every call. */
MOERT_API int64_t moert_layer_max_tokens(const moert_layer *layer);

/* The steps of a call as JSON: `target`, `max_tokens`, `streams`; `variants`,
 * each with `min_tokens`, `max_tokens` and `steps` in order, a step being a
 * launch (`stream`, `kernel`, `dependent`), an event (`stream`, `record` or
 * `wait`) or a collective of ranks (`stream`, `collective`, `axis`); `kernels`
 * with `name`, `grid` (of `tokens`), `block` and `shared` (bytes); `tensors`
 * with `name`, `role`, `dtype`, `shape` (of `tokens`) and, in the workspace,
 * `slot`. Lives as long as the layer. */
MOERT_API const char *moert_layer_plan(const moert_layer *layer);
/* The layer as JSON (docs/use/layers.md), "" if its source was IR. Lives as
 * long as the layer. */
MOERT_API const char *moert_layer_spec(const moert_layer *layer);

/* Number of tensors to bind. */
MOERT_API int moert_layer_num_tensors(const moert_layer *layer);
/* A tensor to bind; NULL for an index out of range. Lives as long as the layer.
 */
MOERT_API const moert_tensor_info *moert_layer_tensor(const moert_layer *layer,
                                                      int index);

/* Number of tensors that the layer prepares, in memory of its own or in memory
 * that the caller has bound. */
MOERT_API int moert_layer_num_prepared(const moert_layer *layer);
/* A prepared tensor; NULL for an index out of range. Lives as long as the
 * layer. */
MOERT_API const moert_tensor_info *
moert_layer_prepared(const moert_layer *layer, int index);

/* Memory of the caller's to bind to a tensor of a layer. */
typedef struct moert_tensor {
  /* The name in moert_tensor_info. */
  const char *name;
  /* The dtype in moert_tensor_info. */
  const char *dtype;
  /* An address on the layer's device. */
  void *data;
  /* The number of dimensions. */
  int rank;
  /* Sizes of the dimensions, in elements. */
  const int64_t *shape;
  /* In elements; NULL for a contiguous tensor. */
  const int64_t *strides;
} moert_tensor;

/* Checks name, dtype, shape, strides, alignment and device. The structure is
 * read before the call returns; the memory stays the caller's.
 *
 * A tensor of moert_layer_prepared() may be bound too, before
 * moert_layer_prepare_weights(), which then writes it there and allocates
 * nothing for it. Such memory serves the weights bound at that time; with other
 * weights it must be bound anew, or the layer allocates. */
MOERT_API moert_status *moert_layer_bind(moert_layer *layer,
                                         const moert_tensor *tensor);

/* Memory and time that preparing the weights took. */
typedef struct moert_prepare_report {
  /* Bytes allocated for prepared weights, in addition to bound memory. */
  int64_t bytes;
  /* Bytes of weights that were prepared in place: their memory now has other
   * contents, which belong to this layer and its clones. */
  int64_t in_place_bytes;
  /* Wall-clock time. */
  double seconds;
} moert_prepare_report;

/* Needed once after the weights are bound, and again after one is bound anew;
 * then weights that were prepared in place must be bound anew first. Waits for
 * the device. `report` may be NULL. If nothing was bound anew the call only
 * reports. */
MOERT_API moert_status *
moert_layer_prepare_weights(moert_layer *layer, moert_prepare_report *report);
/* Prepares again after the caller has written to bound weights. Prepared
 * weights keep their memory, so that clones and captured graphs use the new
 * values too: their runs and replays must be complete before the call, which
 * itself waits for the layer's own runs. Refused if weights were prepared in
 * place: bind those anew. `report` may be NULL. */
MOERT_API moert_status *moert_layer_prepare_again(moert_layer *layer,
                                                  moert_prepare_report *report);

/* Unbinds prepared weights that runs do not read (moert_tensor_info): the
 * caller may free their memory, and memory that the layer itself has loaded is
 * freed. All of these must be bound anew before weights are prepared again. */
MOERT_API moert_status *moert_layer_release_weights(moert_layer *layer);

/* Progress of a call, in bytes. Called in the thread of the call. */
typedef void (*moert_step_fn)(void *user, uint64_t done, uint64_t all);

/* Options for writing and reading a file of prepared weights; all 0 except
 * `size` is the default. */
typedef struct moert_prepared_options {
  /* sizeof(moert_prepared_options), so that later versions may add fields. */
  size_t size;
  /* For a layer of several ranks: the rank of the weights. NULL means the rank
   * known from the communicator or from loading the weights; a file states its
   * rank. */
  const int64_t *rank;
  /* Not 0: do not compare the data read with the digests in the file. */
  int no_digests;
  /* Called with the progress; may be NULL. */
  moert_step_fn step;
  /* Passed to `step` as `user`. */
  void *step_user;
  /* Reading, not 0: refuse a file with the weights of another decoder layer of
   * the model than the one that the layer was compiled for. Files name it
   * where the weights were loaded from a checkpoint. */
  int same_decoder_layer;
} moert_prepared_options;

/* Writes the weights that runs read, prepared or not, to a safetensors file
 * (docs/design/runtime.md), whole or not at all. Prepares them first if
 * necessary. `options` may be NULL. */
MOERT_API moert_status *
moert_layer_write_prepared(moert_layer *layer, const char *path,
                           const moert_prepared_options *options);
/* Replaces binding and preparing weights: reads a file that the same layer has
 * written, into device memory that the layer and its clones own. A file of
 * another layer, target, version or rank, or a damaged one, is refused and
 * changes nothing. `options` may be NULL. */
MOERT_API moert_status *
moert_layer_bind_prepared(moert_layer *layer, const char *path,
                          const moert_prepared_options *options);

/* Bytes of a workspace that serves every call of up to `tokens` tokens. */
MOERT_API moert_status *moert_layer_workspace_bytes(const moert_layer *layer,
                                                    int64_t tokens,
                                                    int64_t *bytes);

/* Workspace that several layers share, with two slots for two overlapping
 * micro-batches: the layers of one micro-batch use slot 0, their clones slot 1.
 * Runs in one slot are serialized, whatever streams and threads they come from.
 *
 * Threads: immutable, so any number may use it at once. Contexts: those of its
 * device. Lifetime: may be freed before its layers, which keep what they use of
 * it; its device is freed after both. */
typedef struct moert_workspace moert_workspace;

/* `bytes` per slot: the maximum of moert_layer_workspace_bytes() over the
 * layers that will use it. */
MOERT_API moert_status *moert_workspace_create(moert_device *device,
                                               int64_t bytes,
                                               moert_workspace **workspace);
/* The memory is freed with the last layer that uses it. */
MOERT_API void moert_workspace_free(moert_workspace *workspace);

/* Makes runs of the layer with `workspace` NULL use slot 0 or 1 from now on; a
 * NULL workspace here returns to memory of the layer's own. Waits for the
 * layer's runs. */
MOERT_API moert_status *
moert_layer_use_workspace(moert_layer *layer, const moert_workspace *workspace,
                          int slot);

/*===----------------------------------------------------------------------===*\
 * Ranks
\*===----------------------------------------------------------------------===*/

/* One rank's connection to the ranks that share layers with it
 * (docs/use/parallel.md). All ranks make the same calls in the same order.
 *
 * Threads: one call at a time, from any thread. Contexts: those of its GPU.
 * Lifetime: may be freed before its layers, which keep what they use of it; a
 * device is freed after both. */
typedef struct moert_communicator moert_communicator;

/* Most ranks of a communicator. */
#define MOERT_MOST_RANKS 65536

/* The ranks of a communicator, and how long they wait for each other. */
typedef struct moert_communicator_options {
  /* sizeof(moert_communicator_options), so that later versions may add
   * fields. */
  size_t size;
  /* `dp` groups of ranks with tokens of their own, and `tp` ranks per group,
   * which share its tokens: of the dp * tp ranks, r is number r % tp of group r
   * / tp. For a spec with 'pcp' there are dp * pcp groups. */
  int64_t dp, tp;
  /* Time that a rank waits for the others in one call; 0 means 60 seconds. */
  double limit_seconds;
} moert_communicator_options;

/* Connects the ranks that torchrun, Open MPI or Slurm started, one process per
 * GPU, by NCCL; docs/use/parallel.md lists the environment variables. */
MOERT_API moert_status *
moert_communicator_from_environment(const moert_communicator_options *options,
                                    moert_communicator **communicator);
/* Connects the ranks by the caller's ncclComm_t, which has all of the ranks and
 * was made with the loaded libnccl. All ranks call this. Afterwards the
 * ncclComm_t is not used, aborted or destroyed. `ordinal` is the GPU of this
 * rank. */
MOERT_API moert_status *
moert_communicator_adopt_nccl(const moert_communicator_options *options,
                              int64_t rank, int ordinal, void *nccl_comm,
                              moert_communicator **communicator);
/* Ranks as threads of this process on one device, for tests: data goes through
 * host memory, and no graph is captured. `communicators` has dp * tp elements.
 */
MOERT_API moert_status *
moert_communicator_create_local(const moert_communicator_options *options,
                                moert_device *device,
                                moert_communicator **communicators);
/* The number of this rank, from 0 to dp * tp - 1. */
MOERT_API int64_t
moert_communicator_rank(const moert_communicator *communicator);
/* Success as long as no rank is known to have failed; does not wait. After a
 * failure every call returns the first one, and a new communicator has to be
 * made. */
MOERT_API moert_status *
moert_communicator_check(const moert_communicator *communicator);
/* Layers that use the communicator remain valid. */
MOERT_API void moert_communicator_free(moert_communicator *communicator);

/* The mesh of the layer's ranks, as in moert_communicator_options; 1 and 1 for
 * a layer of one rank. Either may be NULL. */
MOERT_API void moert_layer_mesh(const moert_layer *layer, int64_t *dp,
                                int64_t *tp);
/* For a layer of several ranks: from `tokens` tokens per rank on, a run is two
 * micro-batches, one of which communicates while the other computes
 * (docs/use/parallel.md, "Micro-batches"). 0, the default, means never. Called
 * before moert_layer_use_communicator(), with the same number on all ranks.
 * Layers with an output or input that has no token dimension are refused. */
MOERT_API moert_status *moert_layer_use_micro_batches(moert_layer *layer,
                                                      int64_t tokens);
/* Needed by a layer of several ranks before its first run. Checks that all
 * ranks have the same layer: all ranks call it. */
MOERT_API moert_status *
moert_layer_use_communicator(moert_layer *layer,
                             const moert_communicator *communicator);

/*===----------------------------------------------------------------------===*\
 * Experts that move between ranks
\*===----------------------------------------------------------------------===*/

/* A layer with `replicas` has physical experts, each a replica of one expert
 * (docs/use/parallel.md). A map lists the expert of each of the `num_physical`
 * physical experts; with several ranks those of rank 0 come first. From time to
 * time:
 *
 *   moert_layer_sum_loads(...)       how often each expert was chosen
 *   moert_balance_experts(...)       a map for such loads
 *   moert_expert_move_begin(...)     move experts to memory of the caller's
 *   moert_expert_move_step(...)      once for each of a rank's experts, with
 *                                    runs of the layer in between
 *   moert_expert_move_switch(...)    use the new map from the next run on */

/* Contents of the layer's `replicas.physical_ids` (num_experts x max_replicas)
 * and `replicas.counts` (num_experts) for a map. If an expert has more than
 * `max_replicas` replicas the first ones are used. */
MOERT_API moert_status *
moert_replica_tables(const int64_t *map, int64_t num_physical,
                     int64_t num_experts, int64_t max_replicas,
                     int32_t *physical_ids, int32_t *counts);

/* Number of ranks, and requirements for a map. */
typedef struct moert_balance_options {
  /* sizeof(moert_balance_options), so that later versions may add fields. */
  size_t size;
  /* Number of experts, each with a load. */
  int64_t num_experts;
  /* Physical experts: a multiple of num_ranks, at least num_experts. */
  int64_t num_physical;
  /* Groups of neighbouring experts that a token's choice is limited to; 1 for
   * no groups. If num_nodes divides the number, a group's experts are on one
   * node. */
  int64_t num_groups;
  /* Number of nodes, and of ranks on all nodes together. */
  int64_t num_nodes, num_ranks;
  /* Maximum number of replicas of an expert; 0 for no limit. */
  int64_t max_replicas;
} moert_balance_options;

/* Makes a map for experts with these loads by DeepSeek's expert-parallel load
 * balancer (EPLB); `map` has num_physical elements. */
MOERT_API moert_status *
moert_balance_experts(const moert_balance_options *options, const double *loads,
                      int64_t *map);

/* Sums over all ranks how often each expert was chosen: `own` has the counts of
 * this rank's physical experts, such as sums over `expert_offsets` by the
 * caller. All ranks call it with the same map, and wait for each other. */
MOERT_API moert_status *moert_layer_sum_loads(
    moert_layer *layer, const moert_communicator *communicator,
    const int64_t *own, int64_t num_own, const int64_t *map,
    int64_t num_physical, int64_t *loads, int64_t num_experts);

/* A move of a layer's experts to where another map has them, beside the layer's
 * runs. A failing call leaves the layer on its old map and memory and ends the
 * move: later calls return the same failure.
 *
 * Threads: one call at a time, from any thread, and none while another call
 * uses the layer or its communicator. Contexts: those of the layer's device.
 * Lifetime: freed before the layer. The memory is the caller's; after a failure
 * of the communicator it must live until the communicator is freed. */
typedef struct moert_expert_move moert_expert_move;

/* `from` is the layer's current map, `to` the new one. `spare` is unused memory
 * for each tensor that moves: the experts' tensors except scales that all
 * inputs share, `replicas.physical_ids` and `replicas.counts`. The layer is
 * bound to it at the end, and its previous memory can serve the next move. All
 * ranks call it with the same maps. With a communicator other than the layer's,
 * the layer can continue after a rank fails to move. */
MOERT_API moert_status *moert_expert_move_begin(
    moert_layer *layer, const moert_communicator *communicator,
    const int64_t *from, const int64_t *to, int64_t num_physical,
    const moert_tensor *spare, int num_spare, moert_expert_move **move);
/* Number of remaining steps. */
MOERT_API int64_t moert_expert_move_num_steps(const moert_expert_move *move);
/* Enqueues the transfer of one expert per rank on the move's own stream. All
 * ranks make the same number of calls, in the same order relative to other
 * calls on the communicator. */
MOERT_API moert_status *moert_expert_move_step(moert_expert_move *move);
/* Called after all steps: waits for the steps of all ranks, then binds the
 * layer to the new memory. The caller must not reuse the old memory before
 * earlier runs are complete; clones and captured graphs still use it. */
MOERT_API moert_status *moert_expert_move_switch(moert_expert_move *move);
/* Freeing a move that has not ended discards it; only its memory has changed.
 */
MOERT_API void moert_expert_move_free(moert_expert_move *move);

/* The layer's own stream, for callers without one. */
/* NOLINTNEXTLINE(performance-no-int-to-ptr): no address of a stream. */
#define MOERT_LAYER_STREAM ((void *)(intptr_t)-1)

/* Runs the layer on `tokens` tokens.
 *
 * `stream` is a CUstream or cudaStream_t, NULL being the default stream, or
 * MOERT_LAYER_STREAM, the only one that a layer on the host takes. The call
 * enqueues work and returns without waiting. (On the host it returns when the
 * run is complete.) `workspace` is aligned to 256 bytes. If it is NULL the
 * layer uses the workspace of moert_layer_use_workspace(), or else its own, and
 * waits and allocates if that has to grow. A run on another stream than the
 * layer's previous run begins, on the device, after the previous one.
 *
 * During stream capture the run becomes part of the graph. The graph owns the
 * code and the layer's memory: prepared and loaded weights, and the workspace.
 * The layer's own workspace for captured runs is separate from that of other
 * runs. Memory of the caller's, bound or given as `workspace`, must outlive the
 * graph. The caller orders replays of graphs that share a workspace. */
MOERT_API moert_status *moert_layer_run(moert_layer *layer, int64_t tokens,
                                        void *stream, void *workspace,
                                        int64_t workspace_bytes);

/* Not 0: the latest run became part of a graph. */
MOERT_API int moert_layer_is_captured(const moert_layer *layer);

/* Waits until the runs of the layer are complete, except replays of graphs. */
MOERT_API moert_status *moert_layer_synchronize(moert_layer *layer);
/* Waits for all work on `stream`, given as for moert_layer_run(). For a layer
 * of several ranks a lost rank ends the wait with an error, which
 * moert_device_synchronize() never does. */
MOERT_API moert_status *moert_layer_synchronize_stream(moert_layer *layer,
                                                       void *stream);

#ifdef __cplusplus
}
#endif

#endif /* MOERT_MOERT_H */
