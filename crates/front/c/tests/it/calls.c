/* Calls every function, with what a program that errs passes too: calls IMAGE DIR. Ends with 0 if all is as it should be. */
#include <errno.h>
#include <forerun.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(holds)                                                                                                  \
    do {                                                                                                              \
        if (!(holds)) {                                                                                               \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                                               \
            exit(1);                                                                                                  \
        }                                                                                                             \
    } while (0)

static forerun_image *image;
static forerun_file *shared_file;

/* Takes an error that must be there, and checks what it says. */
static void expect(forerun_error **error, int number, const char *kind)
{
    CHECK(*error);
    if (forerun_error_errno(*error) != number || strcmp(forerun_error_kind(*error), kind) != 0) {
        fprintf(stderr, "%d %s, not %d %s: %s\n", forerun_error_errno(*error), forerun_error_kind(*error), number,
                kind, forerun_error_message(*error));
        exit(1);
    }
    CHECK(strlen(forerun_error_message(*error)) > 0);
    forerun_error_free(*error);
    *error = NULL;
}

static void options_and_errors(const char *name)
{
    forerun_error *error = NULL;
    forerun_options *options = forerun_options_new();
    CHECK(forerun_options_set_cache(options, 16 << 20, &error) == 0);
    CHECK(forerun_options_set_readahead(options, 1 << 20, &error) == 0);
    CHECK(forerun_options_set_threads(options, 2, &error) == 0);
    CHECK(forerun_options_set_read_limit(options, 10, &error) == 0);
    CHECK(forerun_options_set_cache_dir(options, "/nonexistent", &error) == 0);
    CHECK(forerun_options_set_offline(options, true, &error) == 0);
    CHECK(forerun_options_set_range(options, 0, 0, &error) == 0);
    forerun_image *limited = forerun_image_open(name, options, &error);
    CHECK(limited && !error);
    CHECK(!forerun_image_read(limited, "/etc/hosts", NULL, &error));
    expect(&error, EIO, "limit");
    CHECK(forerun_options_set_format(options, "romfs", &error) == 0);
    CHECK(!forerun_image_open(name, options, &error));
    expect(&error, EIO, "corrupt");
    CHECK(forerun_options_set_format(options, "\xff", &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
    CHECK(!forerun_image_open("/nonexistent/image", NULL, &error));
    expect(&error, ENOENT, "open");
    CHECK(!forerun_image_open(NULL, NULL, &error));
    expect(&error, EINVAL, "invalid_argument");
    CHECK(!forerun_image_open(name, options, NULL));
    forerun_options_free(options);
    forerun_image_free(limited);
}

static void metadata(void)
{
    forerun_error *error = NULL;
    forerun_stat stat;
    CHECK(strcmp(forerun_image_format(image), "squashfs") == 0 && strlen(forerun_image_name(image)) > 0);
    CHECK(forerun_stat_path(image, "/users", &stat, &error) == 0);
    CHECK(stat.kind == FORERUN_REGULAR && stat.size == 11 && stat.mtime > 0);
    CHECK(forerun_lstat_path(image, "/users", &stat, &error) == 0 && stat.kind == FORERUN_SYMLINK);
    CHECK(forerun_stat_path(image, "/nope", &stat, &error) == -1);
    CHECK(strcmp(forerun_error_path(error), "/nope") == 0 && forerun_error_offset(error) == -1);
    expect(&error, ENOENT, "not_found");
    CHECK(forerun_stat_path(image, "/etc/hosts/x", NULL, &error) == -1);
    expect(&error, ENOTDIR, "not_a_directory");
    CHECK(forerun_stat_path(NULL, "/", &stat, &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
    CHECK(forerun_exists(image, "/etc", &error) == 1 && forerun_exists(image, "/nope", &error) == 0);
    char *target = forerun_readlink(image, "/users", &error);
    CHECK(target && strcmp(target, "etc/passwd") == 0);
    forerun_bytes_free((uint8_t *)target);
    CHECK(!forerun_readlink(image, "/etc", &error));
    expect(&error, EINVAL, "not_a_symlink");
    char *real = forerun_realpath(image, "etc/../users", &error);
    CHECK(real && strcmp(real, "/etc/passwd") == 0);
    forerun_bytes_free((uint8_t *)real);
    size_t len = 9;
    char *names = forerun_listxattr(image, "/etc", &len, &error);
    CHECK(names && len == 0);
    forerun_bytes_free((uint8_t *)names);
    CHECK(!forerun_getxattr(image, "/etc", "user.none", &len, &error));
    expect(&error, ENOENT, "not_found");
}

static void files(void)
{
    forerun_error *error = NULL;
    size_t len = 0;
    uint8_t *bytes = forerun_image_read(image, "/etc/hosts", &len, &error);
    CHECK(bytes && len == 20 && strcmp((char *)bytes, "127.0.0.1 localhost\n") == 0);
    forerun_bytes_free(bytes);
    CHECK(!forerun_image_read(image, "/etc", &len, &error));
    expect(&error, EISDIR, "is_a_directory");
    forerun_file *file = forerun_file_open(image, "/etc/hosts", &error);
    CHECK(file && forerun_file_size(file) == 20);
    uint8_t part[32];
    CHECK(forerun_file_pread(file, part, 9, 10, &error) == 9 && memcmp(part, "localhost", 9) == 0);
    CHECK(forerun_file_pread(file, part, sizeof part, 100, &error) == 0);
    CHECK(forerun_file_pread(file, NULL, 0, 0, &error) == 0);
    CHECK(forerun_file_pread(file, NULL, 1, 0, &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
    CHECK(forerun_file_pread(file, part, SIZE_MAX, 0, &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
    CHECK(forerun_file_seek(file, -10, 2, &error) == 10);
    CHECK(forerun_file_read(file, part, sizeof part, &error) == 10 && part[9] == '\n');
    CHECK(forerun_file_read(file, part, sizeof part, &error) == 0);
    CHECK(forerun_file_seek(file, -1, 0, &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
    forerun_file_free(file);
    CHECK(!forerun_file_open(image, "/etc", &error));
    expect(&error, EISDIR, "is_a_directory");
}

static bool stop_at_second(const forerun_extent *extent, void *context)
{
    CHECK(extent->len > 0);
    return ++*(int *)context < 2;
}

static void walks_and_extents(void)
{
    forerun_error *error = NULL;
    forerun_entries *list = forerun_list(image, "/etc", &error);
    forerun_entry entry;
    forerun_stat stat;
    CHECK(forerun_entries_stat(list, &stat, &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
    CHECK(forerun_entries_next(list, &entry, &error) == 1 && strcmp(entry.path, "/etc/hosts") == 0);
    CHECK(forerun_entries_stat(list, &stat, &error) == 0 && stat.size == 20);
    CHECK(forerun_entries_next(list, NULL, &error) == 1 && forerun_entries_next(list, &entry, &error) == 0);
    forerun_entries_free(list);
    CHECK(!forerun_list(image, "/etc/hosts", &error));
    expect(&error, ENOTDIR, "not_a_directory");
    int count = 0;
    forerun_entries *walk = forerun_walk(image, "/", &error);
    while (forerun_entries_next(walk, &entry, &error) == 1) {
        count++;
        if (strcmp(entry.path, "/etc") == 0)
            CHECK(forerun_entries_skip(walk, &error) == 0);
    }
    CHECK(count == 4 && !error);
    forerun_entries_free(walk);
    int extents = 0;
    CHECK(forerun_map(image, "/large", stop_at_second, &extents, &error) == 0 && extents == 2);
    CHECK(forerun_map(image, "/large", NULL, NULL, &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
}

static void packing(const char *dir)
{
    forerun_error *error = NULL;
    char name[4096];
    snprintf(name, sizeof name, "%s/packed", dir);
    uint64_t len = 0;
    forerun_pack_options *options = forerun_pack_options_new("erofs", &error);
    CHECK(forerun_pack_options_set_compressor(options, "zstd", &error) == 0);
    CHECK(forerun_pack_options_set_level(options, 3, &error) == 0);
    CHECK(forerun_pack_options_set_block_size(options, 4096, &error) == 0);
    CHECK(forerun_pack_options_add_exclude(options, "*.sqsh", &error) == 0);
    CHECK(forerun_pack(dir, name, options, &len, &error) == 0 && len > 0);
    CHECK(forerun_pack(dir, name, options, &len, &error) == -1);
    expect(&error, EEXIST, "other");
    CHECK(forerun_pack_options_set_replace(options, true, &error) == 0);
    CHECK(forerun_pack(dir, name, options, NULL, &error) == 0);
    CHECK(forerun_pack_options_set_level(options, 99, &error) == 0);
    CHECK(forerun_pack(dir, name, options, NULL, &error) == -1);
    CHECK(error);
    forerun_error_free(error);
    error = NULL;
    CHECK(forerun_pack("/nonexistent", "/nonexistent/x", NULL, NULL, &error) == -1);
    expect(&error, ENOENT, "other");
    forerun_pack_options_free(options);
}

static void *reader(void *unused)
{
    (void)unused;
    forerun_error *error = NULL;
    for (int round = 0; round < 20; round++) {
        uint8_t part[1000];
        CHECK(forerun_file_pread(shared_file, part, sizeof part, 100000 * (uint64_t)round, &error) == 1000);
        for (size_t at = 0; at < sizeof part; at++)
            CHECK(part[at] == (uint8_t)((100000 * (size_t)round + at) % 251));
        CHECK(!forerun_image_read(image, "/nope", NULL, &error));
        expect(&error, ENOENT, "not_found");
    }
    return NULL;
}

static void threads(void)
{
    pthread_t started[4];
    shared_file = forerun_file_open(image, "/large", NULL);
    for (int n = 0; n < 4; n++)
        CHECK(pthread_create(&started[n], NULL, reader, NULL) == 0);
    for (int n = 0; n < 4; n++)
        pthread_join(started[n], NULL);
    forerun_file_free(shared_file);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    forerun_error *error = NULL;
    CHECK(strlen(forerun_version()) >= 5);
    options_and_errors(argv[1]);
    forerun_image *first = forerun_image_open(argv[1], NULL, &error);
    image = forerun_image_share(first, &error);
    forerun_image_free(first);
    metadata();
    files();
    walks_and_extents();
    threads();
    packing(argv[2]);
    uint64_t value = 0, requests = 0;
    for (size_t n = 0; n < forerun_counter_count(); n++) {
        CHECK(forerun_image_counter(image, n, &value, &error) == 0);
        if (strcmp(forerun_counter_name(n), "source_requests") == 0)
            requests = value;
    }
    CHECK(requests > 0 && !forerun_counter_name(1000));
    CHECK(forerun_image_counter(image, 1000, &value, &error) == -1);
    expect(&error, EINVAL, "invalid_argument");
    CHECK(!forerun_error_message(NULL) && !forerun_error_kind(NULL) && forerun_error_errno(NULL) == 0);
    CHECK(!forerun_image_format(NULL) && forerun_file_size(NULL) == 0);
    forerun_image_free(image);
    forerun_image_free(NULL);
    forerun_file_free(NULL);
    forerun_entries_free(NULL);
    forerun_bytes_free(NULL);
    forerun_error_free(NULL);
    puts("all calls are as they should be");
    return 0;
}
