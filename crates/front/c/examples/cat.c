/* Prints a file of an image, read in parts of 64 KiB: cat IMAGE PATH. */
#include <forerun.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: cat IMAGE PATH\n");
        return 2;
    }
    forerun_error *error = NULL;
    forerun_image *image = forerun_image_open(argv[1], NULL, &error);
    forerun_file *file = image ? forerun_file_open(image, argv[2], &error) : NULL;
    static uint8_t part[64 << 10];
    ssize_t read = file ? 1 : -1;
    while (read > 0 && (read = forerun_file_read(file, part, sizeof part, &error)) > 0)
        fwrite(part, 1, (size_t)read, stdout);
    int code = 0;
    if (read < 0) {
        fprintf(stderr, "%s\n", forerun_error_message(error));
        code = 1;
    }
    forerun_error_free(error);
    forerun_file_free(file);
    forerun_image_free(image);
    return code;
}
