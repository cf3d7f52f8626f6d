// Ricochet for C++17: owners of the handles in ricochet.h, and exceptions instead of results.
//
// The rules of ricochet.h about threads hold here too. Objects can be moved, and free their handles.

#ifndef RICOCHET_HPP
#define RICOCHET_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ricochet.h"

namespace ricochet {

using microseconds = std::chrono::microseconds;
inline constexpr microseconds now{RICOCHET_NOW};
inline constexpr microseconds forever{RICOCHET_FOREVER};

// A result other than success, with the text of ricochet_error.
class error : public std::runtime_error {
public:
    explicit error(ricochet_result result) : std::runtime_error(ricochet_error()), result_(result) {}
    ricochet_result result() const noexcept { return result_; }

private:
    ricochet_result result_;
};

inline void check(ricochet_result result) {
    if (result != RICOCHET_OK) throw error(result);
}

// Owns a handle, which the function `Free` frees.
template <typename T, void (*Free)(T *)>
class owner {
public:
    T *get() const noexcept { return handle_.get(); }

protected:
    // Takes the handle that `make` stores.
    template <typename Make>
    explicit owner(Make make) {
        T *made = nullptr;
        check(make(&made));
        handle_.reset(made);
    }

private:
    struct freer {
        void operator()(T *handle) const noexcept { Free(handle); }
    };
    std::unique_ptr<T, freer> handle_;
};

// Settings of a node that has not started yet. Each setter returns the object.
class options : public owner<ricochet_options, ricochet_options_free> {
public:
    explicit options(const std::string &interface)
        : owner([&](auto out) { return ricochet_options_new(interface.c_str(), out); }) {}
    static options load(const std::string &file) {
        return options([&](ricochet_options **out) { return ricochet_options_load(file.c_str(), out); });
    }
    static options parse(const std::string &toml) {
        return options([&](ricochet_options **out) { return ricochet_options_parse(toml.c_str(), out); });
    }
    options &address(const std::string &ip) { return set(ricochet_options_address(get(), ip.c_str())); }
    options &port(std::uint16_t port) { return set(ricochet_options_port(get(), port)); }
    options &unicast(bool unicast) { return set(ricochet_options_unicast(get(), unicast)); }
    options &seed(const std::string &seed) { return set(ricochet_options_seed(get(), seed.c_str())); }
    options &key(const std::string &key) { return set(ricochet_options_key(get(), key.c_str())); }
    options &control(const std::string &path) { return set(ricochet_options_control(get(), path.c_str())); }

private:
    template <typename Make, typename = decltype(std::declval<Make>()(nullptr))>
    explicit options(Make make) : owner(make) {}
    options &set(ricochet_result result) {
        check(result);
        return *this;
    }
};

// An event of a subscription. `facts` has all but the payload of a message.
struct event {
    ricochet_received facts;
    std::string payload;

    bool is_message() const noexcept { return facts.event == RICOCHET_MESSAGE; }
    std::string_view group() const noexcept { return facts.group; }
    // The key of which the message is the value; empty if it has none.
    std::string_view key() const noexcept {
        return {reinterpret_cast<const char *>(facts.key), facts.key_length};
    }
};

// A queue of the events of one or more groups.
class subscription : public owner<ricochet_subscription, ricochet_subscription_free> {
public:
    // Returns the next event, or nothing if the time is over.
    std::optional<event> receive(microseconds timeout = forever) {
        event next;
        next.payload.resize(capacity_);
        auto take = [&] {
            return ricochet_recv(get(), next.payload.data(), next.payload.size(), timeout.count(), &next.facts);
        };
        ricochet_result result = take();
        while (result == RICOCHET_TOO_SMALL) {
            next.payload.resize(capacity_ = next.facts.length);
            result = take();
        }
        if (result == RICOCHET_TIMEOUT) return std::nullopt;
        check(result);
        next.payload.resize(next.facts.length);
        return next;
    }
    // A descriptor for event loops, which is readable when an event may wait.
    int fd() const { return ricochet_subscription_fd(get()); }
    void leave() { check(ricochet_subscription_leave(get())); }

private:
    friend class node;
    template <typename Make>
    explicit subscription(Make make) : owner(make) {}
    std::size_t capacity_ = 2048;
};

// Sends messages to one group.
class sender : public owner<ricochet_sender, ricochet_sender_free> {
public:
    // Returns whether there was room in time. Without a timeout, there is.
    bool send(std::string_view payload, microseconds timeout = forever) {
        ricochet_result result = ricochet_send(get(), payload.data(), payload.size(), timeout.count(), nullptr);
        if (result == RICOCHET_TIMEOUT) return false;
        check(result);
        return true;
    }
    // Sends the value of a key, of which members keep the last for those who join later.
    bool send_keyed(std::string_view key, std::string_view payload, microseconds timeout = forever) {
        ricochet_result result = ricochet_send_keyed(get(), key.data(), key.size(), payload.data(), payload.size(),
                                                     timeout.count(), nullptr);
        if (result == RICOCHET_TIMEOUT) return false;
        check(result);
        return true;
    }
    // Sends a message, and waits until `members` members hold it.
    void send_held(std::string_view payload, std::size_t members, microseconds timeout) {
        check(ricochet_send_held(get(), payload.data(), payload.size(), members, timeout.count(), nullptr));
    }
    // A descriptor for event loops, which is readable when there may be room again.
    int fd() const { return ricochet_sender_fd(get()); }

private:
    friend class node;
    template <typename Make>
    explicit sender(Make make) : owner(make) {}
};

// A node of a cluster, which ends with the object.
class node : public owner<ricochet_node, ricochet_node_free> {
public:
    explicit node(const options &with)
        : owner([&](ricochet_node **out) { return ricochet_node_start(with.get(), out); }) {}
    ricochet::subscription join(const std::vector<std::string> &groups, const ricochet_join_options &with = {}) {
        std::vector<const char *> names;
        for (const auto &group : groups) names.push_back(group.c_str());
        return ricochet::subscription([&](ricochet_subscription **out) {
            return ricochet_join(get(), names.data(), names.size(), &with, out);
        });
    }
    // `flags` is 0 or a sum of RICOCHET_EXPIRING and RICOCHET_FRAGMENTS.
    ricochet::sender sender(const std::string &group, std::uint32_t flags = 0) {
        return ricochet::sender([&](ricochet_sender **out) {
            return ricochet_sender_new(get(), group.c_str(), flags, out);
        });
    }
    std::string address() const { return ricochet_node_address(get()); }
    // Returns whether there are `count` other members in time. Throws if the node has ended.
    bool wait_for_members(const std::string &group, std::size_t count, microseconds timeout) const {
        auto result = ricochet_node_wait_for_members(get(), group.c_str(), count, timeout.count());
        if (result != RICOCHET_TIMEOUT) check(result);
        return result == RICOCHET_OK;
    }
    // The state of the node, as JSON.
    std::string status() const {
        char *json = nullptr;
        check(ricochet_node_status(get(), &json));
        std::unique_ptr<char, void (*)(char *)> owned(json, ricochet_text_free);
        return owned.get();
    }
    void close() { check(ricochet_node_close(get())); }
};

} // namespace ricochet

#endif
