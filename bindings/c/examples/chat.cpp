// Sends the lines of its input to a group and prints those of others, in one event loop:
// chat CONFIG GROUP [SEED]
//
// With a seed address, it waits for a member before it sends the first line.

#include <poll.h>

#include <cstdio>
#include <exception>
#include <iostream>
#include <string>

#include "ricochet.hpp"

using std::chrono::seconds;

int main(int argc, char **argv) try {
    if (argc < 3) {
        std::cerr << "usage: chat CONFIG GROUP [SEED]\n";
        return 2;
    }
    const std::string group = argv[2];
    auto options = ricochet::options::load(argv[1]);
    if (argc > 3) options.seed(argv[3]);
    ricochet::node node(options);
    auto others = node.join({group});
    auto mine = node.sender(group);
    std::cout << node.address() << std::endl;
    if (argc > 3 && !node.wait_for_members(group, 1, seconds(30))) {
        std::cerr << "error: nobody is in the group\n";
        return 1;
    }

    pollfd waiting[] = {{0, POLLIN, 0}, {others.fd(), POLLIN, 0}};
    std::string line;
    char read_ahead[1024];
    std::setvbuf(stdin, read_ahead, _IONBF, 0);
    for (;;) {
        if (poll(waiting, 2, -1) < 0) continue;
        while (auto event = others.receive(ricochet::now)) {
            if (event->is_message()) std::cout << event->payload << std::endl;
        }
        if ((waiting[0].revents & (POLLIN | POLLHUP)) == 0) continue;
        int read = std::getchar();
        if (read == EOF) break;
        if (read != '\n') {
            line.push_back(static_cast<char>(read));
            continue;
        }
        // Waits for its readers, so that nothing is lost when the program ends.
        if (node.wait_for_members(group, 1, ricochet::now)) mine.send_held(line, 1, seconds(30));
        line.clear();
    }
    return 0;
} catch (const std::exception &error) {
    std::cerr << "error: " << error.what() << "\n";
    return 1;
}
