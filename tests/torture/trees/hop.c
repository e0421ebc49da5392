/* A process that is never the same one twice: it forks, the parent leaves, the child takes a
 * session of its own and goes on. Its steps are counted in a file. It gives up by itself after
 * ten minutes. */
#include <fcntl.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    unsigned long steps = 0;
    time_t begun = time(NULL);
    int file = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0) return 1;
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    while (time(NULL) - begun < 600) {
        pid_t child = fork();
        if (child > 0) _exit(0);
        if (child == 0) setsid();
        steps++;
        if (pwrite(file, &steps, sizeof steps, 0) != sizeof steps) return 1;
    }
    return 0;
}
