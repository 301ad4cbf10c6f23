/* Lists a tree of an image with sizes: ls IMAGE [PATH]. */
#include <forerun.h>
#include <stdio.h>

static int failed(forerun_error *error)
{
    fprintf(stderr, "%s\n", forerun_error_message(error));
    int code = forerun_error_errno(error);
    forerun_error_free(error);
    return code;
}

int main(int argc, char **argv)
{
    forerun_error *error = NULL;
    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: ls IMAGE [PATH]\n");
        return 2;
    }
    forerun_image *image = forerun_image_open(argv[1], NULL, &error);
    if (!image)
        return failed(error);
    forerun_entries *walk = forerun_walk(image, argc == 3 ? argv[2] : "/", &error);
    /* A walk keeps the image open. */
    forerun_image_free(image);
    if (!walk)
        return failed(error);
    forerun_entry entry;
    int code = 0, more;
    while ((more = forerun_entries_next(walk, &entry, &error)) != 0) {
        forerun_stat stat;
        if (more < 0 || forerun_entries_stat(walk, &stat, &error) < 0) {
            code = failed(error);
            error = NULL;
            continue;
        }
        printf("%c %04o %8llu %s\n", "-dlbcps"[entry.kind], (unsigned)stat.permissions,
               (unsigned long long)stat.size, entry.path);
    }
    forerun_entries_free(walk);
    return code;
}
