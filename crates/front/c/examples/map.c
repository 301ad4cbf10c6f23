/* Prints where the bytes of a file are in an image: map IMAGE PATH. */
#include <forerun.h>
#include <stdio.h>

static bool print(const forerun_extent *extent, void *context)
{
    static const char *const places[] = {"zero", "stored", "encoded", "inline"};
    printf("%llu+%llu %s %llu+%llu\n", (unsigned long long)extent->start, (unsigned long long)extent->len,
           places[extent->place], (unsigned long long)extent->offset, (unsigned long long)extent->stored);
    ++*(int *)context;
    return true;
}

int main(int argc, char **argv)
{
    forerun_error *error = NULL;
    int count = 0;
    forerun_image *image = argc == 3 ? forerun_image_open(argv[1], NULL, &error) : NULL;
    if (!image || forerun_map(image, argv[2], print, &count, &error) < 0)
        fprintf(stderr, "%s\n", error ? forerun_error_message(error) : "usage: map IMAGE PATH");
    int code = error || argc != 3;
    forerun_error_free(error);
    forerun_image_free(image);
    return code;
}
