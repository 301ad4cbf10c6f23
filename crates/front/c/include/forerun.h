/* The library of forerun for C: files straight from filesystem images.
 *
 * Made by cbindgen from crates/front/c/src; do not edit it.
 *
 * Every object is created by one function and must be freed once, by the function for its kind. All other functions
 * on an object may run in any number of threads at a time. Strings that a function returns belong to the object
 * and live as long as it does, unless the function's comment says otherwise.
 *
 * A function that can fail returns NULL, -1 or what its comment says. If its last argument is not NULL, it also
 * stores an error there, which the caller frees. Paths are bytes, and resolve inside the image: no ".." and no
 * symbolic link leads out of it. A NULL in place of an object or a path is an error, EINVAL.
 *
 * An image that was opened before fork(2) must not be used in the child. */

#ifndef FORERUN_H
#define FORERUN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 Kind of a node, as the first letter of `ls -l` shows it.
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
 A listing of a directory, or a walk of a tree. It keeps the image open. Threads may share it and
 take turns, but each call for the next entry invalidates the path of the previous one.
 */
typedef struct forerun_entries forerun_entries;

/*
 An error: errno, message, and the path and offset in the image.
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
 Options of opening an image. Only one thread at a time may set them.
 */
typedef struct forerun_options forerun_options;

/*
 Options of packing. Only one thread at a time may set them.
 */
typedef struct forerun_pack_options forerun_pack_options;

/*
 Metadata of a file or directory.
 */
typedef struct {
  /*
   File type.
   */
  forerun_kind kind;
  /*
   Permission bits, with set-id and sticky bits.
   */
  uint32_t permissions;
  /*
   Number of hard links.
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
   Nanoseconds of the modification time.
   */
  uint32_t mtime_nanoseconds;
  /*
   Modification time in seconds since 1970.
   */
  int64_t mtime;
  /*
   Length in bytes.
   */
  uint64_t size;
} forerun_stat;

/*
 An entry of a directory, or a node visited by a walk.
 */
typedef struct {
  /*
   The path of the start, as the caller gave it, with the names below it appended. Valid until
   the next call for an entry.
   */
  const char *path;
  /*
   The kind of the node.
   */
  forerun_kind kind;
} forerun_entry;

/*
 A part of a file, and where it is stored. Offsets and lengths are in bytes.
 */
typedef struct {
  /*
   Offset in the file.
   */
  uint64_t start;
  /*
   Length in the file.
   */
  uint64_t len;
  /*
   How the extent is stored.
   */
  forerun_place place;
  /*
   Number of the file or device that holds it; 0 is the image itself.
   */
  uint32_t blob;
  /*
   Offset in that file or device of the bytes, or of the encoded block.
   */
  uint64_t offset;
  /*
   Stored length in that file or device.
   */
  uint64_t stored;
  /*
   Offset of the extent in the decoded block.
   */
  uint32_t skip;
} forerun_extent;

/*
 Receives each extent, in file order. Returns whether to continue.
 */
typedef bool (*forerun_extent_callback)(const forerun_extent *extent, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 Returns the errno of an error, such as ENOENT, EISDIR or EIO; 0 for NULL.
 */
int32_t forerun_error_errno(const forerun_error *error);

/*
 Returns a short, stable name for the kind of error, such as "not_found" or "corrupt"; NULL for
 NULL.
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
 Returns the offset in the image at which reading or checking failed, or -1.
 */
int64_t forerun_error_offset(const forerun_error *error);

/*
 Frees an error. Does nothing for NULL.
 */
void forerun_error_free(forerun_error *error);

/*
 Creates the default options, which suit a whole image of any format, in a file or on a server.
 */
forerun_options *forerun_options_new(void);

/*
 Sets the part of the file that holds the image, in bytes. A length of 0 means up to the end of
 the file. Returns 0, or -1 on errors.
 */
int32_t forerun_options_set_range(forerun_options *options,
                                  uint64_t offset,
                                  uint64_t len,
                                  forerun_error **error);

/*
 Sets the name of the format, such as "squashfs" or "erofs"; by default it is found by content.
 Returns 0, or -1 on errors.
 */
int32_t forerun_options_set_format(forerun_options *options,
                                   const char *format,
                                   forerun_error **error);

/*
 Sets how many bytes decoded blocks may use in memory. Returns 0, or -1 on errors.
 */
int32_t forerun_options_set_cache(forerun_options *options, uint64_t bytes, forerun_error **error);

/*
 Sets how many bytes are read ahead of a sequential reader; 0 turns readahead off. Returns 0, or
 -1 on errors.
 */
int32_t forerun_options_set_readahead(forerun_options *options,
                                      uint64_t bytes,
                                      forerun_error **error);

/*
 Sets the number of threads that read and decode ahead; 0 means one for each CPU. Returns 0, or
 -1 on errors.
 */
int32_t forerun_options_set_threads(forerun_options *options, size_t count, forerun_error **error);

/*
 Sets the length in bytes of the longest file that `forerun_image_read` reads. Returns 0, or -1
 on errors.
 */
int32_t forerun_options_set_read_limit(forerun_options *options,
                                       uint64_t bytes,
                                       forerun_error **error);

/*
 Sets the directory that caches what was fetched from servers. Returns 0, or -1 on errors.
 */
int32_t forerun_options_set_cache_dir(forerun_options *options,
                                      const char *dir,
                                      forerun_error **error);

/*
 Sets whether images on servers are read from the cache only. Returns 0, or -1 on errors.
 */
int32_t forerun_options_set_offline(forerun_options *options, bool offline, forerun_error **error);

/*
 Frees options. Does nothing for NULL.
 */
void forerun_options_free(forerun_options *object);

/*
 Opens an image. `name` is the path of a file or device, or the address of an image on a server.
 `options` may be NULL. Returns NULL on errors.
 */
forerun_image *forerun_image_open(const char *name,
                                  const forerun_options *options,
                                  forerun_error **error);

/*
 Returns another object for the same open image. Each object must be freed. Files and walks keep
 the image open on their own.
 */
forerun_image *forerun_image_share(const forerun_image *image, forerun_error **error);

/*
 Returns the name of the format, such as "squashfs"; NULL for NULL.
 */
const char *forerun_image_format(const forerun_image *image);

/*
 Returns the name by which the image was opened, without credentials; NULL for NULL.
 */
const char *forerun_image_name(const forerun_image *image);

/*
 Reads the whole file at `path_in_image`. Returns its bytes followed by a NUL, and writes their
 number to `len`, which may be NULL. Returns NULL on errors.
 */
uint8_t *forerun_image_read(const forerun_image *image,
                            const char *path_in_image,
                            size_t *len,
                            forerun_error **error);

/*
 Frees bytes or a string that another function returned for the caller to free. Does nothing for
 NULL.
 */
void forerun_bytes_free(uint8_t *bytes);

/*
 Frees an image. Its files and walks stay usable. Does nothing for NULL.
 */
void forerun_image_free(forerun_image *object);

/*
 Writes the metadata at `path_in_image` to `found`. Follows symbolic links. Returns 0, or -1 on
 errors.
 */
int32_t forerun_stat_path(const forerun_image *image,
                          const char *path_in_image,
                          forerun_stat *found,
                          forerun_error **error);

/*
 Writes the metadata at `path_in_image` to `found`, without following a symbolic link in the last
 component. Returns 0, or -1 on errors.
 */
int32_t forerun_lstat_path(const forerun_image *image,
                           const char *path_in_image,
                           forerun_stat *found,
                           forerun_error **error);

/*
 Returns 1 if `path_in_image` exists, 0 if not, -1 on errors.
 */
int32_t forerun_exists(const forerun_image *image,
                       const char *path_in_image,
                       forerun_error **error);

/*
 Returns the target of the symbolic link at `path_in_image`, or NULL on errors. The caller frees
 it with `forerun_bytes_free`.
 */
char *forerun_readlink(const forerun_image *image,
                       const char *path_in_image,
                       forerun_error **error);

/*
 Returns `path_in_image` without symbolic links, "." and "..", or NULL on errors. The caller
 frees it with `forerun_bytes_free`.
 */
char *forerun_realpath(const forerun_image *image,
                       const char *path_in_image,
                       forerun_error **error);

/*
 Returns the names of the extended attributes at `path_in_image`, each followed by a NUL, and
 writes their total length to `len`. The caller frees them with `forerun_bytes_free`. Returns
 NULL on errors.
 */
char *forerun_listxattr(const forerun_image *image,
                        const char *path_in_image,
                        size_t *len,
                        forerun_error **error);

/*
 Returns the value of an extended attribute at `path_in_image`, and writes its length to `len`.
 The caller frees it with `forerun_bytes_free`. Returns NULL if the attribute does not exist, and
 on errors.
 */
uint8_t *forerun_getxattr(const forerun_image *image,
                          const char *path_in_image,
                          const char *name,
                          size_t *len,
                          forerun_error **error);

/*
 Opens the regular file at `path_in_image`. Follows symbolic links. Returns NULL on errors.
 */
forerun_file *forerun_file_open(const forerun_image *image,
                                const char *path_in_image,
                                forerun_error **error);

/*
 Returns the length of a file in bytes; 0 for NULL.
 */
uint64_t forerun_file_size(const forerun_file *file);

/*
 Reads up to `len` bytes from `offset` on into `out`, without moving the position. Returns the
 number of bytes read, less than `len` only at the end of the file; -1 on errors.
 */
ptrdiff_t forerun_file_pread(const forerun_file *file,
                             uint8_t *out,
                             size_t len,
                             uint64_t offset,
                             forerun_error **error);

/*
 Reads up to `len` bytes at the position into `out`, and advances the position. Returns the
 number of bytes read, 0 only at the end of the file; -1 on errors.
 */
ptrdiff_t forerun_file_read(const forerun_file *file,
                            uint8_t *out,
                            size_t len,
                            forerun_error **error);

/*
 Moves the position as lseek(2) does, with SEEK_SET (0), SEEK_CUR (1) or SEEK_END (2). Returns
 the new position, or -1 on errors.
 */
int64_t forerun_file_seek(const forerun_file *file,
                          int64_t offset,
                          int32_t whence,
                          forerun_error **error);

/*
 Frees a file. Does nothing for NULL.
 */
void forerun_file_free(forerun_file *object);

/*
 Lists the directory at `path_in_image`, in the image's order. Returns NULL on errors.
 */
forerun_entries *forerun_list(const forerun_image *image,
                              const char *path_in_image,
                              forerun_error **error);

/*
 Walks `path_in_image` and everything below it, each directory before its contents. Does not
 follow symbolic links. Returns NULL on errors.
 */
forerun_entries *forerun_walk(const forerun_image *image,
                              const char *path_in_image,
                              forerun_error **error);

/*
 Writes the next entry to `entry`. Returns 1, or 0 after the last one. Returns -1 for an error,
 which concerns one entry or directory: the next call continues after it.
 */
int32_t forerun_entries_next(const forerun_entries *entries,
                             forerun_entry *entry,
                             forerun_error **error);

/*
 Writes the metadata of the entry that was returned last to `found`. Returns 0, or -1 on errors.
 */
int32_t forerun_entries_stat(const forerun_entries *entries,
                             forerun_stat *found,
                             forerun_error **error);

/*
 Skips the contents of the directory that a walk returned last. Returns 0, or -1 on errors.
 */
int32_t forerun_entries_skip(const forerun_entries *entries, forerun_error **error);

/*
 Frees a listing or walk. Does nothing for NULL.
 */
void forerun_entries_free(forerun_entries *object);

/*
 Calls `callback` with `context` for each extent of the file at `path_in_image`. The callback
 must return, and must not call functions on this image. Returns 0, or -1 on errors.
 */
int32_t forerun_map(const forerun_image *image,
                    const char *path_in_image,
                    forerun_extent_callback callback,
                    void *context,
                    forerun_error **error);

/*
 Creates the default options of a format: "squashfs", "erofs", "romfs" or "exfat". Returns NULL
 for NULL. For any other name, `forerun_pack` fails.
 */
forerun_pack_options *forerun_pack_options_new(const char *format, forerun_error **error);

/*
 Sets the compressor, such as "zstd" or "lz4". Returns 0, or -1 on errors.
 */
int32_t forerun_pack_options_set_compressor(forerun_pack_options *options,
                                            const char *name,
                                            forerun_error **error);

/*
 Sets the compression level. Returns 0, or -1 on errors.
 */
int32_t forerun_pack_options_set_level(forerun_pack_options *options,
                                       uint8_t level,
                                       forerun_error **error);

/*
 Sets the block size in bytes. Returns 0, or -1 on errors.
 */
int32_t forerun_pack_options_set_block_size(forerun_pack_options *options,
                                            uint32_t bytes,
                                            forerun_error **error);

/*
 Sets whether an existing image is replaced. Returns 0, or -1 on errors.
 */
int32_t forerun_pack_options_set_replace(forerun_pack_options *options,
                                         bool replace,
                                         forerun_error **error);

/*
 Adds a pattern of paths to leave out, such as "*.o". Returns 0, or -1 on errors.
 */
int32_t forerun_pack_options_add_exclude(forerun_pack_options *options,
                                         const char *pattern,
                                         forerun_error **error);

/*
 Packs the directory `source` into the file `image`, which appears under its name only when it is
 complete and synced. Writes its length in bytes to `len`, which may be NULL. `options` may be
 NULL. Returns 0, or -1 on errors.
 */
int32_t forerun_pack(const char *source,
                     const char *image,
                     const forerun_pack_options *options,
                     uint64_t *len,
                     forerun_error **error);

/*
 Frees pack options. Does nothing for NULL.
 */
void forerun_pack_options_free(forerun_pack_options *object);

/*
 Returns the number of counters.
 */
size_t forerun_counter_count(void);

/*
 Returns the name of a counter, such as "source_requests"; NULL past the last one. The name is
 never freed.
 */
const char *forerun_counter_name(size_t index);

/*
 Writes the value of a counter since the image was opened to `value`. Returns 0, or -1 on errors.
 */
int32_t forerun_image_counter(const forerun_image *image,
                              size_t index,
                              uint64_t *value,
                              forerun_error **error);

/*
 Returns the version of the library, such as "0.1.0". The string is never freed.
 */
const char *forerun_version(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FORERUN_H */
