/* The library of forerun for C: files straight from filesystem images.
 *
 * Made by cbindgen of crates/front/c/src; do not change it here.
 *
 * Every object is made by one function and given back to another one of its kind, once. Functions of one object may
 * run in any number of threads at a time, but for that one. Strings that a function returns belong to the object
 * and live as long as it does, unless its comment says otherwise.
 *
 * A function that can fail returns NULL, -1 or what its comment says, and gives an error where its last argument is
 * not NULL: the caller frees it. Paths are bytes, and lie in the image: no ".." and no symbolic link leads out of
 * it. A NULL in place of an object or a path is an error, EINVAL.
 *
 * An image that was opened before fork(2) must not be used in the child. */

#ifndef FORERUN_H
#define FORERUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 Kind of a node, as the letter of `ls -l`.
 */
typedef enum {
  FORERUN_REGULAR = 0,
  FORERUN_DIRECTORY = 1,
  FORERUN_SYMLINK = 2,
  FORERUN_BLOCK_DEVICE = 3,
  FORERUN_CHAR_DEVICE = 4,
  FORERUN_FIFO = 5,
  FORERUN_SOCKET = 6,
} forerun_kind;

/*
 How an extent is stored.
 */
typedef enum {
  FORERUN_ZERO = 0,
  FORERUN_STORED = 1,
  FORERUN_ENCODED = 2,
  FORERUN_INLINE = 3,
} forerun_place;

/*
 A listing of a directory, or a walk of a tree. It keeps the image open. Threads take turns, but the path of an
 entry is that of the next one as soon as one of them advances.
 */
typedef struct forerun_entries forerun_entries;

/*
 An error: its errno, a text, and the place in the image.
 */
typedef struct forerun_error forerun_error;

/*
 An open regular file. It keeps the image open.
 */
typedef struct forerun_file forerun_file;

/*
 An open image.
 */
typedef struct forerun_image forerun_image;

/*
 Options of opening an image. One thread at a time may set them.
 */
typedef struct forerun_options forerun_options;

/*
 Options of packing. One thread at a time may set them.
 */
typedef struct forerun_pack_options forerun_pack_options;

/*
 Metadata of a file or directory.
 */
typedef struct {
  /*
   Kind.
   */
  forerun_kind kind;
  /*
   Permission bits, with set-id and sticky bits.
   */
  uint32_t permissions;
  /*
   Number of names.
   */
  uint32_t nlink;
  /*
   User id of the owner.
   */
  uint32_t uid;
  /*
   Group id of the owner.
   */
  uint32_t gid;
  /*
   Major number of a device.
   */
  uint32_t major;
  /*
   Minor number of a device.
   */
  uint32_t minor;
  /*
   Nanoseconds of the time of the last change of contents.
   */
  uint32_t mtime_nanoseconds;
  /*
   Seconds of that time, since 1970.
   */
  int64_t mtime;
  /*
   Length in bytes.
   */
  uint64_t size;
} forerun_stat;

/*
 An entry of a directory, or a node that a walk has met.
 */
typedef struct {
  /*
   Its path: that of the start as it was given, and what is below. Lives until the next entry is asked for.
   */
  const char *path;
  /*
   Its kind, which takes no read.
   */
  forerun_kind kind;
} forerun_entry;

/*
 A piece of a file, and its place. All in bytes.
 */
typedef struct {
  /*
   First byte in the file.
   */
  uint64_t start;
  /*
   Length in the file.
   */
  uint64_t len;
  /*
   How it is stored.
   */
  forerun_place place;
  /*
   The store: 0 is the image itself.
   */
  uint32_t blob;
  /*
   Where it begins there: the bytes, or the encoded block.
   */
  uint64_t offset;
  /*
   Bytes that it takes there.
   */
  uint64_t stored;
  /*
   Bytes of the decoded block before the first of this piece.
   */
  uint32_t skip;
} forerun_extent;

/*
 Is told of each extent, in the order of the file. Returns whether to go on.
 */
typedef bool (*forerun_extent_callback)(const forerun_extent *extent, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the errno of an error: ENOENT, EISDIR, EIO and others; 0 for NULL.
 */
int32_t forerun_error_errno(const forerun_error *error);

/*
 Returns a short stable name of the kind of an error, such as "not_found" or "corrupt"; NULL for NULL.
 */
const char *forerun_error_kind(const forerun_error *error);

/*
 Returns the message of an error, with the image and the path; NULL for NULL.
 */
const char *forerun_error_message(const forerun_error *error);

/*
 Returns the path in the image that an error is about, or NULL.
 */
const char *forerun_error_path(const forerun_error *error);

/*
 Returns the byte of the image at which reading or checking failed, or -1.
 */
int64_t forerun_error_offset(const forerun_error *error);

/*
 Frees an error. NULL is none.
 */
void forerun_error_free(forerun_error *error);

/*
 Creates the default options, which suit a whole image of any format, in a file or at a server.
 */
forerun_options *forerun_options_new(void);

/*
 Sets the part of the file that is the image, in bytes. A length of 0 means all that follows.
 Returns 0, or -1.
 */
int32_t forerun_options_set_range(forerun_options *options,
                                  uint64_t offset,
                                  uint64_t len,
                                  forerun_error **error);

/*
 Sets the name of the format, where it is not to be found by content: "squashfs", "erofs" and others. Returns 0, or -1.
 */
int32_t forerun_options_set_format(forerun_options *options,
                                   const char *format,
                                   forerun_error **error);

/*
 Sets the bytes that decoded blocks may take. Returns 0, or -1.
 */
int32_t forerun_options_set_cache(forerun_options *options, uint64_t bytes, forerun_error **error);

/*
 Sets the bytes that are read ahead of a sequential reader; 0 turns that off. Returns 0, or -1.
 */
int32_t forerun_options_set_readahead(forerun_options *options,
                                      uint64_t bytes,
                                      forerun_error **error);

/*
 Sets the number of threads that read and decode ahead; 0 means one for each CPU. Returns 0, or -1.
 */
int32_t forerun_options_set_threads(forerun_options *options, size_t count, forerun_error **error);

/*
 Sets the longest file that `forerun_image_read` reads, in bytes. Returns 0, or -1.
 */
int32_t forerun_options_set_read_limit(forerun_options *options,
                                       uint64_t bytes,
                                       forerun_error **error);

/*
 Sets the directory that keeps what was fetched of images at servers. Returns 0, or -1.
 */
int32_t forerun_options_set_cache_dir(forerun_options *options,
                                      const char *dir,
                                      forerun_error **error);

/*
 Sets whether images at servers are read from the cache only. Returns 0, or -1.
 */
int32_t forerun_options_set_offline(forerun_options *options, bool offline, forerun_error **error);

/*
 Frees options. NULL is none.
 */
void forerun_options_free(forerun_options *object);

/*
 Opens an image: a path of a file or device, or an address of one at a server. `options` may be NULL. Returns NULL
 if it cannot be opened or is no image.
 */
forerun_image *forerun_image_open(const char *name,
                                  const forerun_options *options,
                                  forerun_error **error);

/*
 Returns another object for the same open image, to be freed by itself. Files and walks keep the image open
 anyway.
 */
forerun_image *forerun_image_share(const forerun_image *image,
                                   forerun_error **error);

/*
 Returns the name of the format, such as "squashfs"; NULL for NULL.
 */
const char *forerun_image_format(const forerun_image *image);

/*
 Returns the name by which the image was opened, without credentials; NULL for NULL.
 */
const char *forerun_image_name(const forerun_image *image);

/*
 Reads the whole file at `path_in_image`. Returns its bytes, with a NUL behind them, and puts their number into `len`, which
 may be NULL. Returns NULL on errors.
 */
uint8_t *forerun_image_read(const forerun_image *image,
                            const char *path_in_image,
                            size_t *len,
                            forerun_error **error);

/*
 Frees bytes or a string that a function has returned for the caller to free. NULL is none.
 */
void forerun_bytes_free(uint8_t *bytes);

/*
 Frees an image. Files and walks of it stay usable. NULL is none.
 */
void forerun_image_free(forerun_image *object);

/*
 Puts the metadata at `path_in_image` into `found`. Symbolic links are followed. Returns 0, or -1.
 */
int32_t forerun_stat_path(const forerun_image *image,
                          const char *path_in_image,
                          forerun_stat *found,
                          forerun_error **error);

/*
 Puts the metadata at `path_in_image` into `found`, of a symbolic link in the last place those of the link. Returns 0, or -1.
 */
int32_t forerun_lstat_path(const forerun_image *image,
                           const char *path_in_image,
                           forerun_stat *found,
                           forerun_error **error);

/*
 Returns 1 if `path_in_image` leads to a file or directory, 0 if not, -1 on errors.
 */
int32_t forerun_exists(const forerun_image *image,
                       const char *path_in_image,
                       forerun_error **error);

/*
 Returns the target of the symbolic link at `path_in_image`, for the caller to free with `forerun_bytes_free`, or NULL.
 */
char *forerun_readlink(const forerun_image *image,
                       const char *path_in_image,
                       forerun_error **error);

/*
 Returns `path_in_image` without symbolic links, "." and "..", for the caller to free with `forerun_bytes_free`, or NULL.
 */
char *forerun_realpath(const forerun_image *image,
                       const char *path_in_image,
                       forerun_error **error);

/*
 Returns the names of the extended attributes at `path_in_image`, each with a NUL behind it, and puts the number of bytes into
 `len`. The caller frees them with `forerun_bytes_free`. Returns NULL on errors.
 */
char *forerun_listxattr(const forerun_image *image,
                        const char *path_in_image,
                        size_t *len,
                        forerun_error **error);

/*
 Returns the value of an extended attribute at `path_in_image`, and puts the number of its bytes into `len`. The caller frees
 it with `forerun_bytes_free`. Returns NULL if there is none of that name, and on errors.
 */
uint8_t *forerun_getxattr(const forerun_image *image,
                          const char *path_in_image,
                          const char *name,
                          size_t *len,
                          forerun_error **error);

/*
 Opens the regular file at `path_in_image`. Symbolic links are followed. Returns NULL on errors.
 */
forerun_file *forerun_file_open(const forerun_image *image,
                                const char *path_in_image,
                                forerun_error **error);

/*
 Returns the length of a file in bytes; 0 for NULL.
 */
uint64_t forerun_file_size(const forerun_file *file);

/*
 Reads up to `len` bytes from `offset` on into `out`. Returns how many: fewer only at the end of the file, or -1. The
 position stays where it is.
 */
ptrdiff_t forerun_file_pread(const forerun_file *file,
                             uint8_t *out,
                             size_t len,
                             uint64_t offset,
                             forerun_error **error);

/*
 Reads up to `len` bytes at the position into `out`, and advances the position. Returns how many: 0 only at the end of
 the file, or -1.
 */
ptrdiff_t forerun_file_read(const forerun_file *file,
                            uint8_t *out,
                            size_t len,
                            forerun_error **error);

/*
 Moves the position as lseek(2) does, with SEEK_SET (0), SEEK_CUR (1) or SEEK_END (2). Returns the new position, or
 -1.
 */
int64_t forerun_file_seek(const forerun_file *file,
                          int64_t offset,
                          int32_t whence,
                          forerun_error **error);

/*
 Frees a file. NULL is none.
 */
void forerun_file_free(forerun_file *object);

/*
 Lists the directory at `path_in_image`, in the image's order. Returns NULL on errors.
 */
forerun_entries *forerun_list(const forerun_image *image,
                              const char *path_in_image,
                              forerun_error **error);

/*
 Walks `path_in_image` and all below it, a directory before what is in it. Symbolic links are not followed. Returns NULL on
 errors.
 */
forerun_entries *forerun_walk(const forerun_image *image,
                              const char *path_in_image,
                              forerun_error **error);

/*
 Puts the next entry into `entry`. Returns 1, 0 after the last one, or -1: that concerns one entry or directory, and
 the next call goes on after it.
 */
int32_t forerun_entries_next(const forerun_entries *entries,
                             forerun_entry *entry,
                             forerun_error **error);

/*
 Puts the metadata of the entry that was returned last into `found`. Returns 0, or -1.
 */
int32_t forerun_entries_stat(const forerun_entries *entries,
                             forerun_stat *found,
                             forerun_error **error);

/*
 Leaves out what is in the directory that a walk has returned last. Returns 0, or -1.
 */
int32_t forerun_entries_skip(const forerun_entries *entries, forerun_error **error);

/*
 Frees a listing or walk. NULL is none.
 */
void forerun_entries_free(forerun_entries *object);

/*
 Calls `callback` with each extent of the file at `path_in_image`, and with `context`. The callback must return, and call no
 function of this image. Returns 0, or -1.
 */
int32_t forerun_map(const forerun_image *image,
                    const char *path_in_image,
                    forerun_extent_callback callback,
                    void *context,
                    forerun_error **error);

/*
 Creates the default options of a format: "squashfs", "erofs", "romfs" or "exfat". Returns NULL for NULL; another name
 is an error of `forerun_pack`.
 */
forerun_pack_options *forerun_pack_options_new(const char *format,
                                               forerun_error **error);

/*
 Sets the compressor: "zstd", "lz4" and others. Returns 0, or -1.
 */
int32_t forerun_pack_options_set_compressor(forerun_pack_options *options,
                                            const char *name,
                                            forerun_error **error);

/*
 Sets the effort of the compressor. Returns 0, or -1.
 */
int32_t forerun_pack_options_set_level(forerun_pack_options *options,
                                       uint8_t level,
                                       forerun_error **error);

/*
 Sets the bytes of a block. Returns 0, or -1.
 */
int32_t forerun_pack_options_set_block_size(forerun_pack_options *options,
                                            uint32_t bytes,
                                            forerun_error **error);

/*
 Sets whether an image that is there is replaced. Returns 0, or -1.
 */
int32_t forerun_pack_options_set_replace(forerun_pack_options *options,
                                         bool replace,
                                         forerun_error **error);

/*
 Adds a pattern of paths that are left out, such as "*.o". Returns 0, or -1.
 */
int32_t forerun_pack_options_add_exclude(forerun_pack_options *options,
                                         const char *pattern,
                                         forerun_error **error);

/*
 Packs the directory `source` into the new file `image`, which appears under its name once all of it is on disk, and
 puts its length in bytes into `len`, which may be NULL. `options` may be NULL. Returns 0, or -1.
 */
int32_t forerun_pack(const char *source,
                     const char *image,
                     const forerun_pack_options *options,
                     uint64_t *len,
                     forerun_error **error);

/*
 Frees options of packing. NULL is none.
 */
void forerun_pack_options_free(forerun_pack_options *object);

/*
 Returns the number of counters.
 */
size_t forerun_counter_count(void);

/*
 Returns the name of a counter, such as "source_requests"; NULL past the last one. It is never freed.
 */
const char *forerun_counter_name(size_t index);

/*
 Puts the value of a counter, since the image was opened, into `value`. Returns 0, or -1.
 */
int32_t forerun_image_counter(const forerun_image *image,
                              size_t index,
                              uint64_t *value,
                              forerun_error **error);

/*
 Returns the version of the library, such as "0.1.0". It is never freed.
 */
const char *forerun_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FORERUN_H */
