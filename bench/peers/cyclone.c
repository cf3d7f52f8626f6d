// Cyclone DDS: one topic per group, one reliable keep-all writer or reader for each. README.md has the settings and why.
#define _GNU_SOURCE
#include "participant.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "dds/dds.h"
#include "message.h"

enum { DOMAIN = 0, TAKE_MAX = 64, CONFIG_MAX = 2048, MATCH_CHECK_MS = 20 };

// A reader and what its listener needs; the listeners run in threads of the library.
struct channel {
    struct system *system;
    unsigned group;
    dds_entity_t endpoint;
};

struct system {
    struct participant p;
    pthread_mutex_t records;
    struct channel channels[GROUPS_MAX];
};

// The elements of //CycloneDDS/Domain/Internal that the settings change from what the library has.
static void internal_config(const struct participant *p, char *text, size_t room) {
    bool tuned = setting_is(p, "profile", "tuned");
    double heartbeat_ms = setting_number(p, "heartbeat_ms", tuned ? 20 : 100);
    double nack_ms = setting_number(p, "nack_delay_ms", tuned ? 0 : 100);
    snprintf(text, room,
             "<SocketReceiveBufferSize min=\"default\" max=\"4 MiB\"/>"
             "<HeartbeatInterval min=\"%g ms\" minsched=\"%g ms\" max=\"%s\">%g ms</HeartbeatInterval>"
             "<NackDelay>%g ms</NackDelay>",
             heartbeat_ms < 5 ? heartbeat_ms : 5, heartbeat_ms < 20 ? heartbeat_ms : 20, tuned ? "100 ms" : "8 s",
             heartbeat_ms, nack_ms);
    if (!tuned) return;
    size_t len = strlen(text);
    snprintf(text + len, room - len,
             "<AutoReschedNackDelay>%g ms</AutoReschedNackDelay><AckDelay>%g ms</AckDelay>"
             "<SynchronousDeliveryLatencyBound>inf</SynchronousDeliveryLatencyBound>"
             "<SynchronousDeliveryPriorityThreshold>-1000</SynchronousDeliveryPriorityThreshold>",
             setting_number(p, "auto_nack_ms", 20), setting_number(p, "ack_delay_ms", 10));
}

static dds_entity_t checked(dds_entity_t result, const char *what) {
    if (result < 0) fail("cyclone: cannot create %s: %s", what, dds_strretcode(result));
    return result;
}

static dds_entity_t create_participant(const struct participant *p) {
    char internal[CONFIG_MAX] = "", config[CONFIG_MAX + 512];
    bool all_default = setting_is(p, "profile", "default") && setting_number(p, "heartbeat_ms", 0) == 0;
    if (!all_default) internal_config(p, internal, sizeof internal);
    snprintf(config, sizeof config,
             "<CycloneDDS><Domain id=\"any\"><General><Interfaces><NetworkInterface name=\"%s\"/></Interfaces></General>"
             "<Internal>%s</Internal></Domain></CycloneDDS>",
             p->interface, internal);
    checked(dds_create_domain(DOMAIN, config), "the domain");
    return checked(dds_create_participant(DOMAIN, NULL, NULL), "the participant");
}

static void on_data(dds_entity_t reader, void *context) {
    struct channel *channel = context;
    void *samples[TAKE_MAX] = {NULL};
    dds_sample_info_t infos[TAKE_MAX];
    dds_return_t taken;
    while ((taken = dds_take(reader, samples, infos, TAKE_MAX, TAKE_MAX)) > 0) {
        pthread_mutex_lock(&channel->system->records);
        for (int i = 0; i < taken; i++) {
            const peers_Message *message = samples[i];
            if (infos[i].valid_data)
                participant_deliver(&channel->system->p, channel->group, message->bytes._buffer, message->bytes._length);
        }
        pthread_mutex_unlock(&channel->system->records);
        dds_return_loan(reader, samples, taken);
    }
}

static void open_channels(struct system *s) {
    dds_entity_t participant = create_participant(&s->p);
    dds_qos_t *qos = dds_create_qos();
    dds_qset_reliability(qos, DDS_RELIABILITY_RELIABLE, DDS_SECS(10));
    dds_qset_history(qos, DDS_HISTORY_KEEP_ALL, 0);
    for (unsigned group = 0; group < s->p.groups; group++) {
        struct channel *channel = &s->channels[group];
        *channel = (struct channel){.system = s, .group = group};
        char name[32];
        snprintf(name, sizeof name, "group%u", group);
        dds_entity_t topic = checked(dds_create_topic(participant, &peers_Message_desc, name, NULL, NULL), "a topic");
        if (s->p.sends) {
            channel->endpoint = checked(dds_create_writer(participant, topic, qos, NULL), "a writer");
            continue;
        }
        dds_listener_t *listener = dds_create_listener(channel);
        dds_lset_data_available(listener, on_data);
        channel->endpoint = checked(dds_create_reader(participant, topic, qos, listener), "a reader");
        dds_delete_listener(listener);
    }
    dds_delete_qos(qos);
}

static bool all_matched(const struct system *s) {
    for (unsigned group = 0; group < s->p.groups; group++) {
        dds_publication_matched_status_t writer;
        dds_subscription_matched_status_t reader;
        if (s->p.sends) {
            dds_get_publication_matched_status(s->channels[group].endpoint, &writer);
            if (writer.current_count < s->p.receivers) return false;
        } else {
            dds_get_subscription_matched_status(s->channels[group].endpoint, &reader);
            if (reader.current_count < s->p.senders) return false;
        }
    }
    return true;
}

static bool send_message(void *context, unsigned group, const uint8_t *bytes, size_t size) {
    struct system *s = context;
    peers_Message message = {.bytes = {._maximum = size, ._length = size, ._buffer = (uint8_t *)bytes, ._release = false}};
    dds_return_t result = dds_write(s->channels[group].endpoint, &message);
    if (result == DDS_RETCODE_TIMEOUT) return false;
    if (result < 0) fail("cyclone: cannot write: %s", dds_strretcode(result));
    return true;
}

int main(int argc, char **argv) {
    static struct system s = {.records = PTHREAD_MUTEX_INITIALIZER};
    participant_init(&s.p, argc, argv);
    open_channels(&s);
    bool ready = false;
    for (;;) {
        enum command command = participant_wait(&s.p, -1, ready ? -1 : MATCH_CHECK_MS);
        if (command == COMMAND_END) return 0;
        if (command == COMMAND_STOP) break;
        if (command == COMMAND_GO && s.p.sends) participant_send_all(&s.p, send_message, &s);
        if (!ready && all_matched(&s)) {
            ready = true;
            say("ready");
        }
    }
    pthread_mutex_lock(&s.records); // held to the end: what arrives now is too late to be counted
    participant_finish(&s.p);
    fflush(stdout);
    _Exit(0); // the farewells of 128 topics would only keep the rig waiting
}
