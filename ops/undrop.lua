-- Shows the datagrams of Undrop in Wireshark and tshark: those of Ricochet's nodes, and the outer header of those that
-- gateways exchange, whose bodies are encrypted. For Wireshark 3.6 and newer.
--
-- Copy this file to the folder for personal Lua plugins (Help > About Wireshark > Folders), or name it on the command line:
--
--   tshark -X lua_script:undrop.lua -r capture.pcapng -Y ricochet
--
-- Ports are a setting of each protocol (Edit > Preferences > Protocols). Datagrams at other ports are recognized by
-- their first bytes; a datagram that could be anything is recognized only after a clear one of the same conversation.
-- Datagrams that are not laid out as docs/wire.md says have the expert information `ricochet.malformed` or
-- `maelstrom.malformed`, which names the field, what was expected and what came.

-- begin of what `cargo xtask wire --write` makes from docs/wire.toml
local VERSIONS = { maelstrom = 9, ricochet = 11 }
local DATAGRAMS = {
  maelstrom = {
    [1] = { name = "Hello", layout = "hello" },
    [2] = { name = "sealed", layout = "sealed" },
  },
  membership = {
    [1] = { name = "message of the failure detector", layout = "detector" },
    [2] = { name = "summary of lists", layout = "summary" },
    [3] = { name = "steps of lists", layout = "steps" },
    [4] = { name = "requests for lists", layout = "list_requests" },
    [5] = { name = "chunk of a list", layout = "chunk" },
    [6] = { name = "presence", layout = "presence" },
    [7] = { name = "request for addresses", layout = "address_request" },
    [8] = { name = "addresses", layout = "addresses" },
    [9] = { name = "question of identity", layout = "identity_question" },
    [10] = { name = "identity", layout = "identity_answer" },
  },
  ricochet = {
    [0] = { name = "greeting", layout = "greeting", forms = { [5] = "names", [6] = "names" } },
    [1] = { name = "data", layout = "data" },
    [2] = { name = "retransmission", layout = "data" },
    [3] = { name = "repair", layout = "repair" },
    [4] = { name = "request", layout = "request" },
    [5] = { name = "heartbeat", layout = "heartbeat" },
    [6] = { name = "membership" },
    [7] = { name = "question", layout = "question" },
    [8] = { name = "answer", layout = "answer" },
    [9] = { name = "report of room", layout = "rooms" },
    [10] = { name = "request for reports of room", layout = "probe" },
    [11] = { name = "denial", layout = "request" },
    [12] = { name = "request for history", layout = "history_request" },
    [13] = { name = "history", layout = "history" },
  },
}
local LAYOUTS = {
  address_request = {
    protocol = "ricochet",
    fields = {
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "entries", id = "entries", entry = "node", count = "count", of = { { name = "id", id = "id", bytes = 4, is = "hex" } } },
    },
  },
  addresses = {
    protocol = "ricochet",
    fields = {
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "entries", id = "entries", entry = "node", count = "count", of = { { name = "id", id = "id", bytes = 4, is = "hex" }, { name = "family", id = "family", bytes = 1, values = { [4] = "IPv4", [6] = "IPv6" } }, { name = "IP address", id = "address", is = "address" }, { name = "port", id = "port", bytes = 2, min = 1 } } },
    },
  },
  answer = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "flags", id = "flags", bytes = 1, bits = { "sent" } },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "token", id = "token", bytes = 8, is = "hex" },
      { name = "group", id = "group", bytes = 8, is = "hex" },
      { name = "newest", id = "newest", bytes = 4, zero = { field = "flags", bit = 0 } },
    },
  },
  beat = {
    protocol = "maelstrom",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex", min = 177, max = 177 },
      { name = "zero", id = "zero", bytes = 1, max = 0 },
      { name = "nonce", id = "nonce", bytes = 12 },
      { name = "body", id = "body", rest = true, leaves = 16, min = 160, max = 160 },
      { name = "tag", id = "tag", bytes = 16 },
    },
  },
  chunk = {
    protocol = "ricochet",
    fields = {
      { name = "id", id = "id", bytes = 4, is = "hex" },
      { name = "version", id = "version", bytes = 4 },
      { name = "check", id = "check", bytes = 4, is = "hex" },
      { name = "total", id = "total", bytes = 4, max = 65536 },
      { name = "number", id = "chunk", bytes = 2 },
      { name = "groups", id = "groups", max = 160, entry = "group", of = { { name = "group", id = "group", bytes = 8, is = "hex" } } },
    },
  },
  data = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "flags", id = "flags", bytes = 1, bits = { "expires", "fragment", "several", "time", "envelope" } },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "group", id = "group", bytes = 8, is = "hex" },
      { name = "sequence number", id = "sequence_number", bytes = 4 },
      { name = "sender's number", id = "senders_number", bytes = 4 },
      { name = "time", id = "time", bytes = 8, is = "time", when = { field = "flags", bit = 3 } },
      { name = "payload", id = "payload", rest = true },
    },
  },
  detector = {
    protocol = "ricochet",
    fields = {
      { name = "source", id = "source", layout = "identity" },
      { name = "incarnation", id = "incarnation", bytes = 2 },
      { name = "destination", id = "destination", layout = "identity" },
      { name = "message", id = "message", bytes = 1, values = { [1] = "ping", [2] = "ack", [3] = "ping request", [4] = "indirect ping", [5] = "indirect ack", [6] = "forwarded ack", [7] = "announce", [8] = "feed", [9] = "gossip", [10] = "you are down" } },
      { name = "probe", id = "probe", bytes = 1, when = { field = "message", is = { 1, 2, 3, 4, 5, 6 } } },
      { name = "third", id = "third", when = { field = "message", is = { 3, 4, 5, 6 } }, layout = "identity" },
      { name = "count", id = "nodes_count", bytes = 2, when = { field = "message", is = { 1, 2, 3, 4, 5, 6, 8, 9 } }, optional = true },
      { name = "nodes", id = "nodes", when = { field = "message", is = { 1, 2, 3, 4, 5, 6, 8, 9 } }, entry = "node", count = "nodes_count", of = { { name = "identity", id = "identity", layout = "identity" }, { name = "incarnation", id = "incarnation", bytes = 2 }, { name = "state", id = "state", bytes = 1, values = { [0] = "alive", [1] = "suspect", [2] = "down" } } } },
    },
  },
  envelope = {
    protocol = "ricochet",
    fields = {
      { name = "length", id = "envelope_length", bytes = 2 },
      { name = "items", id = "items", length = "envelope_length", entry = "item", of = { { name = "kind", id = "item_kind", bytes = 1, values = { [1] = "deadline", [2] = "content type", [3] = "headers", [4] = "request", [5] = "reply", [6] = "key" } }, { name = "length", id = "length", bytes = 2 }, { name = "value", id = "item_value", length = "length" } } },
    },
  },
  fragment = {
    protocol = "ricochet",
    fields = {
      { name = "total", id = "message_length", bytes = 4, min = 1 },
      { name = "index", id = "index", bytes = 2 },
      { name = "size", id = "size", bytes = 2, min = 1 },
      { name = "bytes", id = "bytes", rest = true },
    },
  },
  greeting = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "form", id = "form", bytes = 1, values = { [1] = "call", [2] = "question", [3] = "answer", [4] = "farewell" } },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "round", id = "round", bytes = 4, when = { field = "form", is = { 1, 2, 3 } } },
      { name = "address", id = "address_number", bytes = 1, max = 63, when = { field = "form", is = { 1 } } },
      { name = "heard", id = "heard", bytes = 8, is = "hex", when = { field = "form", is = { 2, 3 } } },
      { name = "flags", id = "flags", bytes = 1, bits = { "unicast", "copies" }, when = { field = "form", is = { 2, 3 } } },
      { name = "group port", id = "group_port", bytes = 2, when = { field = "form", is = { 2, 3 } } },
      { name = "group addresses", id = "group_addresses", bytes = 1, when = { field = "form", is = { 2, 3 } } },
      { name = "groups base", id = "groups_base", bytes = 16, is = "ipv6", when = { field = "form", is = { 2, 3 } } },
      { name = "datagram max", id = "datagram_max", bytes = 2, when = { field = "form", is = { 2, 3 } } },
    },
  },
  heartbeat = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "sender's number", id = "senders_number", bytes = 4 },
      { name = "newest", id = "newest", entry = "stream", count = "count", of = { { name = "group", id = "group", bytes = 8, is = "hex" }, { name = "sequence number of its newest packet there", id = "newest", bytes = 4 } } },
    },
  },
  hello = {
    protocol = "maelstrom",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "part of the key", id = "part_of_the_key", bytes = 1, values = { [0] = "only key", [1] = "present key", [2] = "next key" } },
      { name = "nonce", id = "nonce", bytes = 12 },
      { name = "body", id = "body", rest = true, leaves = 16 },
      { name = "tag", id = "tag", bytes = 16 },
    },
  },
  history = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "flags", id = "flags", bytes = 1, bits = { "offer", "forgotten", "complete", "streams" } },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "token", id = "token", bytes = 8, is = "hex" },
      { name = "group", id = "group", bytes = 8, is = "hex" },
      { name = "offset", id = "offset", bytes = 8 },
      { name = "end", id = "end", bytes = 8 },
      { name = "messages to skip", id = "messages_to_skip", bytes = 2, when = { field = "flags", is = { 1, 5 } } },
      { name = "messages", id = "messages_offered", bytes = 8, when = { field = "flags", is = { 1, 5 } } },
      { name = "clock", id = "clock", bytes = 8, when = { field = "flags", is = { 1, 5 } } },
      { name = "bytes", id = "log", rest = true, min = 1, when = { field = "flags", is = { 0 } } },
      { name = "streams", id = "streams", min = 1, when = { field = "flags", is = { 8 } }, entry = "stream", of = { { name = "sender", id = "packet_sender", bytes = 4, is = "hex" }, { name = "number of its next packet", id = "next", bytes = 4 } } },
    },
  },
  history_request = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "wish", id = "wish", bytes = 1, values = { [0] = "for the last messages", [1] = "for the messages of a time", [2] = "for bytes of the log", [3] = "for the last value of each key", [4] = "for bytes of the copy" } },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "token", id = "token", bytes = 8, is = "hex" },
      { name = "group", id = "group", bytes = 8, is = "hex" },
      { name = "value", id = "value", bytes = 8, zero = { field = "wish", is = { 3 } } },
      { name = "length", id = "bytes_wanted", bytes = 4, zero = { field = "wish", is = { 0, 1, 3 } } },
    },
  },
  identity = {
    protocol = "ricochet",
    fields = {
      { name = "family", id = "family", bytes = 1, values = { [4] = "IPv4", [6] = "IPv6" } },
      { name = "address", id = "address", is = "address" },
      { name = "port", id = "port", bytes = 2, min = 1 },
      { name = "id", id = "id", bytes = 4, is = "hex" },
      { name = "life", id = "life", bytes = 8, is = "time", max = 9007199254740992 },
    },
  },
  identity_answer = {
    protocol = "ricochet",
    fields = {
      { name = "token", id = "token", bytes = 8, is = "hex" },
      { name = "id", id = "id", bytes = 4, is = "hex" },
      { name = "life", id = "life", bytes = 8, is = "time", max = 9007199254740992 },
      { name = "version", id = "version", bytes = 4 },
      { name = "check", id = "check", bytes = 4, is = "hex" },
    },
  },
  identity_question = {
    protocol = "ricochet",
    fields = {
      { name = "token", id = "token", bytes = 8, is = "hex" },
      { name = "id", id = "id", bytes = 4, is = "hex" },
      { name = "life", id = "life", bytes = 8, is = "time", max = 9007199254740992 },
    },
  },
  list_requests = {
    protocol = "ricochet",
    fields = {
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "requests", id = "requests", entry = "list", count = "count", of = { { name = "id", id = "id", bytes = 4, is = "hex" }, { name = "version held", id = "version_held", bytes = 4 }, { name = "version wanted", id = "version_wanted", bytes = 4 }, { name = "first chunk", id = "first_chunk", bytes = 2 }, { name = "chunks", id = "chunks", bytes = 1, is = "hex" } } },
    },
  },
  messages = {
    protocol = "ricochet",
    fields = {
      { name = "messages", id = "messages", min = 1, max = 32, entry = "message", of = { { name = "length", id = "length", bytes = 2 }, { name = "message", id = "message_bytes", length = "length" } } },
    },
  },
  names = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "form", id = "names_form", bytes = 1, values = { [5] = "question", [6] = "answer" } },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "number", id = "number", bytes = 4 },
      { name = "version", id = "names_version", bytes = 8 },
      { name = "pattern", id = "pattern", rest = true, is = "text", min = 1, max = 256, when = { field = "names_form", is = { 5 } } },
      { name = "part", id = "part", bytes = 1, when = { field = "names_form", is = { 6 } } },
      { name = "parts", id = "parts", bytes = 1, max = 64, when = { field = "names_form", is = { 6 } } },
      { name = "names", id = "names", when = { field = "names_form", is = { 6 } }, entry = "name", of = { { name = "length", id = "length", bytes = 2 }, { name = "name", id = "name", length = "length", is = "text" } } },
    },
  },
  presence = {
    protocol = "ricochet",
    fields = {
      { name = "flags", id = "flags", bytes = 1, bits = { "leaves", "request" } },
      { name = "id", id = "id", bytes = 4, is = "hex" },
      { name = "life", id = "life", bytes = 8, is = "time", max = 9007199254740992 },
      { name = "number", id = "number", bytes = 4 },
      { name = "version", id = "version", bytes = 4 },
      { name = "check", id = "check", bytes = 4, is = "hex" },
    },
  },
  probe = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "reserved", id = "reserved", bytes = 1, max = 0 },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "group", id = "group", bytes = 8, is = "hex" },
      { name = "newest", id = "newest", bytes = 4 },
    },
  },
  question = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "reserved", id = "reserved", bytes = 1, max = 0 },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "token", id = "token", bytes = 8, is = "hex" },
      { name = "group", id = "group", bytes = 8, is = "hex" },
    },
  },
  repair = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "flags", id = "flags", bytes = 1, bits = { "symbol" } },
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "names", id = "names", entry = "packet", count = "count", distinct = true, of = { { name = "sender", id = "packet_sender", bytes = 4, is = "hex" }, { name = "group tag", id = "group_tag", bytes = 4, is = "hex" }, { name = "sequence number", id = "sequence_number", bytes = 4 } } },
      { name = "symbol", id = "symbol", rest = true, min = 15, when = { field = "flags", bit = 0 } },
    },
  },
  request = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "ranges", id = "ranges", entry = "range", count = "count", of = { { name = "sender", id = "packet_sender", bytes = 4, is = "hex" }, { name = "group", id = "group", bytes = 8, is = "hex" }, { name = "first sequence number", id = "first_sequence_number", bytes = 4 }, { name = "number of packets", id = "number_of_packets", bytes = 2, min = 1 } } },
    },
  },
  rooms = {
    protocol = "ricochet",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "sender", id = "sender", bytes = 4, is = "hex" },
      { name = "streams", id = "streams", entry = "stream", count = "count", of = { { name = "group", id = "group", bytes = 8, is = "hex" }, { name = "position", id = "position", bytes = 4 }, { name = "newest", id = "newest", bytes = 4 }, { name = "window", id = "window", bytes = 4 } } },
    },
  },
  sealed = {
    protocol = "maelstrom",
    fields = {
      { name = "kind", id = "kind", bytes = 1, is = "hex" },
      { name = "time of sending", id = "time_of_sending", bytes = 3 },
      { name = "epoch", id = "epoch", bytes = 4, is = "hex" },
      { name = "counter", id = "counter", bytes = 4 },
      { name = "body", id = "body", rest = true, leaves = 16, min = 1 },
      { name = "tag", id = "tag", bytes = 16 },
    },
  },
  steps = {
    protocol = "ricochet",
    fields = {
      { name = "count", id = "count", bytes = 1, min = 1, max = 64 },
      { name = "steps", id = "steps", entry = "step", count = "count", of = { { name = "id", id = "id", bytes = 4, is = "hex" }, { name = "version", id = "version", bytes = 4 }, { name = "check", id = "check", bytes = 4, is = "hex" }, { name = "added", id = "added", bytes = 1 }, { name = "removed", id = "removed", bytes = 1 }, { name = "groups added", id = "groups_added", entry = "group", count = "added", of = { { name = "group", id = "group", bytes = 8, is = "hex" } } }, { name = "groups removed", id = "groups_removed", entry = "group", count = "removed", of = { { name = "group", id = "group", bytes = 8, is = "hex" } } } } },
    },
  },
  summary = {
    protocol = "ricochet",
    fields = {
      { name = "flags", id = "flags", bytes = 1, bits = { "reply" } },
      { name = "count", id = "count", bytes = 1, min = 1, max = 160 },
      { name = "entries", id = "entries", entry = "list", count = "count", of = { { name = "id", id = "id", bytes = 4, is = "hex" }, { name = "version", id = "version", bytes = 4 } } },
    },
  },
  trailer = {
    protocol = "ricochet",
    fields = {
      { name = "sender", id = "sealing_node", bytes = 4, is = "hex" },
      { name = "start", id = "start", bytes = 8, is = "time" },
      { name = "counter", id = "counter", bytes = 6 },
      { name = "key", id = "key_name", bytes = 2, is = "hex" },
      { name = "authenticator", id = "authenticator", bytes = 16 },
    },
  },
}
-- end of it

local TRAILER = 36
-- Datagrams of the membership are at most this long.
local MEMBERSHIP_MAX = 1400
-- Times of about 2005 and 2255 in microseconds since 1970: the start of a process lies between them.
local START_MIN, START_MAX = 2 ^ 50, 2 ^ 53

local protocols = {
  ricochet = Proto("ricochet", "Ricochet multicast"),
  maelstrom = Proto("maelstrom", "Maelstrom repair channel"),
}
local malformed = {}
for name, protocol in pairs(protocols) do
  malformed[name] = ProtoExpert.new(
    name .. ".malformed", "Malformed datagram", expert.group.MALFORMED, expert.severity.ERROR)
  protocol.experts.malformed = malformed[name]
end
local foreign = ProtoExpert.new(
  "ricochet.version", "Datagram of another version", expert.group.PROTOCOL, expert.severity.WARN)
protocols.ricochet.experts.version = foreign
local unfit = ProtoExpert.new(
  "ricochet.unfit", "Payload that nodes refuse", expert.group.PROTOCOL, expert.severity.WARN)
protocols.ricochet.experts.unfit = unfit

-- Fields of Wireshark -------------------------------------------------------------------------------------------------

local UNSIGNED = { ProtoField.uint8, ProtoField.uint16, ProtoField.uint24, ProtoField.uint32 }

local function label(name)
  return name:sub(1, 1):upper() .. name:sub(2)
end

-- Returns the field or the fields for a row of a layout, by what Wireshark calls them.
local function fields_of(row, name)
  local kind, text = row.is, label(row.name)
  if kind == "address" then
    return { [name] = ProtoField.ipv4(name, text), [name .. "6"] = ProtoField.ipv6(name .. "6", text) }
  elseif kind == "ipv6" then
    return { [name] = ProtoField.ipv6(name, text) }
  elseif kind == "text" then
    return { [name] = ProtoField.string(name, text) }
  elseif kind == "time" then
    return { [name] = ProtoField.absolute_time(name, text, base.UTC) }
  elseif not row.bytes or row.bytes > 8 then
    return { [name] = ProtoField.bytes(name, text) }
  end
  local make = UNSIGNED[row.bytes] or ProtoField.uint64
  if not row.bits then
    return { [name] = make(name, text, kind == "hex" and base.HEX or base.DEC, row.values) }
  end
  local fields = { [name] = make(name, text, base.HEX) }
  for bit, meaning in ipairs(row.bits) do
    local part = name .. "." .. meaning
    fields[part] = ProtoField.bool(part, label(meaning), 8, nil, 2 ^ (bit - 1))
  end
  return fields
end

local all_fields = { ricochet = {}, maelstrom = {} }

-- Names the fields of rows, and adds them to those of the protocol. Flags belong to their layout; other fields of the same
-- name are the same field in all of them.
local function add_fields(protocol, layout, rows)
  for _, row in ipairs(rows) do
    if row.of then
      add_fields(protocol, layout, row.of)
    elseif not row.layout then
      row.field = (row.bits and protocol .. "." .. layout or protocol) .. "." .. row.id
      for name, field in pairs(fields_of(row, row.field)) do
        all_fields[protocol][name] = all_fields[protocol][name] or field
      end
    end
  end
end

for name, layout in pairs(LAYOUTS) do
  add_fields(layout.protocol, name, layout.fields)
end

-- Datagrams of the membership have two bytes before their layout.
local membership_names = {}
for number, entry in pairs(DATAGRAMS.membership) do
  membership_names[number] = entry.name
end
all_fields.ricochet["ricochet.membership"] =
  ProtoField.uint8("ricochet.membership", "Membership", base.DEC, membership_names)

for name, protocol in pairs(protocols) do
  protocol.fields = all_fields[name]
end

-- Reading by the layouts ----------------------------------------------------------------------------------------------

-- A state is the datagram and how much of it counts: `tvb`, `stop`, and `tree`, or none if nothing is shown. `seen` has the
-- numbers read before by their ids, and `text` what the list of packets shows of them.

local function has_bit(number, bit)
  return math.floor(number / 2 ^ bit) % 2 == 1
end

-- Whether a field has one of these values, or that bit.
local function holds(condition, seen)
  local value = seen[condition.field]
  if not value then
    return false
  elseif condition.bit then
    return has_bit(value, condition.bit)
  end
  for _, one in ipairs(condition.is) do
    if one == value then
      return true
    end
  end
  return false
end

-- Returns what is wrong with a number, or nothing.
local function wrong_number(row, value, state)
  if row.bits and value >= 2 ^ #row.bits then
    return string.format("expected no bit but those of 0x%02x, saw 0x%02x", 2 ^ #row.bits - 1, value)
  elseif row.values and not row.values[value] then
    return string.format("expected a known value, saw %d", value)
  elseif row.min and value < row.min then
    return string.format("expected at least %d, saw %d", row.min, value)
  elseif row.max and value > row.max then
    return string.format("expected at most %.0f, saw %.0f", row.max, value)
  elseif row.zero and value ~= 0 then
    local must_be = holds(row.zero, state.seen)
    if row.zero.bit then
      must_be = not must_be
    end
    if must_be then
      return string.format("expected 0 here, saw %.0f", value)
    end
  end
end

-- Returns the value of a number; one of 64 bits may lose its low bits.
local function number_at(range)
  if range:len() <= 4 then
    return range:uint()
  end
  local value = 0
  for at = 0, range:len() - 1 do
    value = value * 256 + range:range(at, 1):uint()
  end
  return value
end

local function show(row, range, value, state)
  local fields, item = all_fields[state.protocol]
  if row.is == "text" then
    item = state.tree:add(fields[row.field], range, range:string(ENC_UTF_8))
  elseif row.is == "time" then
    local whole = math.floor(value / 1000000)
    item = state.tree:add(fields[row.field], range, NSTime.new(whole, (value - whole * 1000000) * 1000))
  elseif row.is == "address" and range:len() == 16 then
    item = state.tree:add(fields[row.field .. "6"], range)
  else
    item = state.tree:add(fields[row.field], range)
  end
  for bit, meaning in ipairs(row.bits or {}) do
    item:add(fields[row.field .. "." .. meaning], range)
  end
end

-- Returns the number of bytes of a field, at most those that are left, or what is wrong.
local function length_of(row, at, state)
  local left = state.stop - at
  if row.rest then
    local length = left - (row.leaves or 0)
    if length < (row.min or 0) then
      return nil, string.format("expected at least %d bytes, saw %d", (row.min or 0) + (row.leaves or 0), left)
    elseif row.max and length > row.max then
      return nil, string.format("expected at most %d bytes, saw %d", row.max, length)
    end
    return length
  end
  local length = row.bytes or row.length and state.seen[row.length] or (state.seen.family == 6 and 16 or 4)
  if length > left then
    return nil, string.format("expected %d bytes, saw %d", length, left)
  end
  return length
end

local function read_field(row, at, state)
  local length, why = length_of(row, at, state)
  if why then
    return nil, why
  elseif length == 0 then
    return at
  end
  local range, value = state.tvb:range(at, length)
  local is_number = row.bytes and row.bytes <= 8
  if is_number then
    value = number_at(range)
    state.seen[row.id] = value
    state.text[row.id] = row.is == "hex" and range:bytes():tohex():lower() or string.format("%.0f", value)
    if row.values and row.values[value] then
      state.text[row.id] = row.values[value]
    end
  end
  if state.tree then
    show(row, range, value, state)
  end
  why = is_number and wrong_number(row, value, state)
  if why then
    return nil, why
  end
  return at + length
end

local read_rows

-- Reads the entries of a list. Each has at least a byte, so there are at most as many as bytes.
local function read_list(row, at, state)
  local stop, count, is_known = state.stop, row.count and state.seen[row.count], {}
  if row.length then
    stop = at + state.seen[row.length]
    if stop > state.stop then
      return nil, string.format("expected %d bytes, saw %d", state.seen[row.length], state.stop - at)
    end
  end
  local number = 0
  while (count and number < count) or (not count and at < stop) do
    number = number + 1
    if not count and row.max and number > row.max then
      return nil, string.format("expected at most %d, saw more", row.max)
    end
    local tree = state.tree and at < stop and state.tree:add(state.tvb:range(at, 1), label(row.entry) .. " " .. number)
    local seen = setmetatable({}, { __index = state.seen })
    local inner = { tvb = state.tvb, stop = stop, tree = tree or nil, seen = seen, text = {}, protocol = state.protocol }
    local after, why, where = read_rows(row.of, at, inner)
    if why then
      return nil, string.format("entry %d: %s: %s", number, where, why)
    end
    if tree then
      tree:set_len(after - at)
    end
    local bytes = row.distinct and state.tvb:range(at, after - at):bytes():tohex()
    if bytes and is_known[bytes] then
      return nil, string.format("expected each entry once, saw entry %d again", number)
    elseif bytes then
      is_known[bytes] = true
    end
    at = after
  end
  if not count and row.min and number < row.min then
    return nil, string.format("expected at least %d, saw %d", row.min, number)
  end
  return at
end

-- Reads rows from `at` on. Returns the place behind them, or nil with what is wrong and in which field.
read_rows = function(rows, at, state)
  for _, row in ipairs(rows) do
    local why, where
    if not row.when or holds(row.when, state.seen) then
      if row.optional and at == state.stop then
        return at
      elseif row.layout then
        at, why, where = read_rows(LAYOUTS[row.layout].fields, at, state)
      elseif row.of then
        at, why = read_list(row, at, state)
      else
        at, why = read_field(row, at, state)
      end
    end
    if why then
      return nil, why, where and row.name .. ": " .. where or row.name
    end
  end
  return at
end

-- Returns where a field of a layout that is read begins: those before it have fixed lengths.
local function place_of(name, id, seen)
  local at = 0
  for _, row in ipairs(LAYOUTS[name].fields) do
    if row.id == id then
      return at
    elseif not row.when or holds(row.when, seen) then
      at = at + row.bytes
    end
  end
end

-- What a layout alone does not say. Each returns what is wrong and in which field, or nothing.
local RULES = {}

function RULES.data(state)
  local flags, body = state.seen.flags, place_of("data", "payload", state.seen)
  if has_bit(flags, 1) and has_bit(flags, 2) then
    return "expected not both a fragment and several messages", "flags"
  elseif has_bit(flags, 2) then
    local inner = { tvb = state.tvb, stop = state.stop, seen = {}, text = {}, protocol = "ricochet" }
    local _, why, where = read_rows(LAYOUTS.messages.fields, body, inner)
    return why, where
  end
end

function RULES.names(state)
  local part, parts = state.seen.part, state.seen.parts
  if part and part >= math.max(parts, 1) then
    return string.format("expected a part below %d, saw %d", math.max(parts, 1), part), "part"
  end
end

function RULES.chunk(state, from)
  local first = state.seen.chunk * 160
  if first > 0 and first >= state.seen.total then
    return string.format("expected a chunk of %d groups, saw number %d", state.seen.total, state.seen.chunk), "number"
  end
  local expected, seen = math.min(state.seen.total - first, 160), (state.stop - from - place_of("chunk", "groups", state.seen)) / 8
  if expected ~= seen then
    return string.format("expected %d, saw %g", expected, seen), "groups"
  end
end

-- Reads a layout to the end. Returns nothing, or what is wrong and in which field.
local function read_layout(name, from, state)
  local at, why, where = read_rows(LAYOUTS[name].fields, from, state)
  if not why and at < state.stop then
    why, where = string.format("expected no more bytes, saw %d", state.stop - at), "end"
  end
  if not why and RULES[name] then
    why, where = RULES[name](state, from)
  end
  return why, where
end

-- Ricochet ------------------------------------------------------------------------------------------------------------

-- Returns the datagram's entry in the tables, its layout, and where that begins; or what is wrong.
local function ricochet_kind(tvb, stop, tree)
  if stop < 2 then
    return nil, nil, 0, string.format("expected at least 2 bytes, saw %d", stop)
  end
  local first, second = tvb:range(0, 1):uint(), tvb:range(1, 1):uint()
  local entry = DATAGRAMS.ricochet[first % 16]
  if not entry then
    return nil, nil, 0, string.format("expected a known kind, saw 0x%02x", first)
  elseif entry.layout then
    return entry, entry.forms and entry.forms[second] or entry.layout, 0
  end
  if tree then
    tree:add(all_fields.ricochet["ricochet.kind"], tvb:range(0, 1))
    tree:add(all_fields.ricochet["ricochet.membership"], tvb:range(1, 1))
  end
  entry = DATAGRAMS.membership[second]
  if not entry then
    return nil, nil, 0, string.format("expected a known kind of membership datagram, saw %d", second)
  elseif stop > MEMBERSHIP_MAX then
    return entry, nil, 0, string.format("expected at most %d bytes, saw %d", MEMBERSHIP_MAX, stop)
  end
  return entry, entry.layout, 2
end

-- Reads a datagram up to `stop`. Returns its entry, its state, and what is wrong and in which field.
local function read_ricochet(tvb, stop, tree)
  local state = { tvb = tvb, stop = stop, tree = tree, seen = {}, text = {}, protocol = "ricochet" }
  local entry, layout, from, why = ricochet_kind(tvb, stop, tree)
  if why then
    return entry, state, why, "kind"
  end
  local where
  why, where = read_layout(layout, from, state)
  state.layout = layout
  return entry, state, why, where
end

-- Whether the last bytes look like the trailer of a node with a cluster key.
local function has_trailer(tvb, choice)
  local at = tvb:len() - TRAILER
  if choice ~= 2 or at < 2 then
    return choice == 1 and at >= 0
  end
  local start = number_at(tvb:range(at + 4, 8))
  if start < START_MIN or start >= START_MAX or tvb:range(at + 12, 1):uint() ~= 0 then
    return false
  end
  local _, state, why = read_ricochet(tvb, at)
  -- Other nodes retransmit the packets of a sender, and a datagram of the membership may name no sender.
  local is_senders = tvb:range(0, 1):uint() % 16 ~= 2 and state.text.sender
  return not why and (not is_senders or state.seen.sender == tvb:range(at, 4):uint())
end

-- Shows the message, the messages or the fragment of a packet.
local function show_payload(state, tree)
  local flags, at = state.seen.flags, place_of("data", "payload", state.seen)
  if at >= state.stop then
    return
  end
  local inner = { tvb = state.tvb, stop = state.stop, tree = tree, seen = {}, text = {}, protocol = "ricochet" }
  local why, where
  if has_bit(flags, 2) then
    at, why, where = read_rows(LAYOUTS.messages.fields, at, inner)
  elseif has_bit(flags, 1) then
    at, why, where = read_rows(LAYOUTS.fragment.fields, at, inner)
    if not why and inner.seen.index == 0 and has_bit(flags, 4) then
      at = place_of("data", "payload", state.seen) + place_of("fragment", "bytes", inner.seen)
      at, why, where = read_rows(LAYOUTS.envelope.fields, at, inner)
    end
  elseif has_bit(flags, 4) then
    at, why, where = read_rows(LAYOUTS.envelope.fields, at, inner)
  end
  if why then
    tree:add_proto_expert_info(unfit, "Payload that nodes refuse: " .. where .. ": " .. why)
  end
end

local IN_LIST = { "form", "names_form", "wish", "message", "sender", "id", "group", "sequence_number", "newest", "count", "token", "number" }

-- The line of a datagram in the list of packets.
local function summary(entry, state)
  local words = { label(entry.name) }
  for _, id in ipairs(IN_LIST) do
    if state.text[id] then
      words[#words + 1] = id:gsub("_", " ") .. " " .. state.text[id]
    end
  end
  return table.concat(words, ", ")
end

local function dissect_ricochet(tvb, pinfo, root)
  local protocol = protocols.ricochet
  pinfo.cols.protocol = "Ricochet"
  if tvb:len() == 0 then
    return 0
  end
  local tree, version = root:add(protocol, tvb:range()), math.floor(tvb:range(0, 1):uint() / 16)
  if version ~= VERSIONS.ricochet then
    local text = string.format("expected version %d, saw %d", VERSIONS.ricochet, version)
    tree:add_proto_expert_info(foreign, "Datagram of another version: " .. text)
    pinfo.cols.info = "Datagram of another version: " .. text
    return tvb:len()
  end
  local has_end = has_trailer(tvb, protocol.prefs.trailer)
  local stop = tvb:len() - (has_end and TRAILER or 0)
  local entry, state, why, where = read_ricochet(tvb, stop, tree)
  local name = entry and label(entry.name) or "Unknown datagram"
  tree:append_text(", " .. name)
  pinfo.cols.info = entry and summary(entry, state) or name
  if why then
    tree:add_proto_expert_info(malformed.ricochet, string.format("Malformed datagram: %s: %s", where, why))
    pinfo.cols.info:append(string.format(" [malformed: %s: %s]", where, why))
  elseif state.layout == "data" then
    show_payload(state, tree)
  end
  if has_end then
    local part = tree:add(tvb:range(stop, TRAILER), "Trailer")
    local inner = { tvb = tvb, stop = tvb:len(), tree = part, seen = {}, text = {}, protocol = "ricochet" }
    read_rows(LAYOUTS.trailer.fields, stop, inner)
  end
  return tvb:len()
end

-- Layouts whose lengths and values leave no doubt.
local IS_CLEAR = {
  request = true, heartbeat = true, question = true, answer = true, rooms = true, probe = true, history_request = true,
  greeting = true, detector = true, summary = true, steps = true, list_requests = true, chunk = true, presence = true,
  address_request = true, addresses = true, identity_question = true, identity_answer = true,
}

local function is_ricochet(tvb)
  if tvb:len() < 2 or math.floor(tvb:range(0, 1):uint() / 16) ~= VERSIONS.ricochet then
    return false
  elseif has_trailer(tvb, 2) then
    return true
  end
  local _, state, why = read_ricochet(tvb, tvb:len())
  return not why and IS_CLEAR[state.layout] == true
end

-- Maelstrom -----------------------------------------------------------------------------------------------------------

local function dissect_maelstrom(tvb, pinfo, root)
  pinfo.cols.protocol = "Maelstrom"
  if tvb:len() == 0 then
    return 0
  end
  local first, tree = tvb:range(0, 1):uint(), root:add(protocols.maelstrom, tvb:range())
  local entry, version = DATAGRAMS.maelstrom[first % 16], math.floor(first / 16)
  local state = { tvb = tvb, stop = tvb:len(), tree = tree, seen = {}, text = {}, protocol = "maelstrom" }
  local why, where
  if version ~= VERSIONS.maelstrom then
    why, where = string.format("expected version %d, saw %d", VERSIONS.maelstrom, version), "kind"
  elseif not entry then
    why, where = string.format("expected a known kind, saw 0x%02x", first), "kind"
  else
    why, where = read_layout(entry.layout, 0, state)
  end
  local words = { entry and label(entry.name) or "Unknown datagram" }
  for _, id in ipairs({ "epoch", "counter" }) do
    words[#words + 1] = state.text[id] and id .. " " .. state.text[id]
  end
  pinfo.cols.info = table.concat(words, ", ")
  tree:append_text(", " .. words[1])
  if why then
    tree:add_proto_expert_info(malformed.maelstrom, string.format("Malformed datagram: %s: %s", where, why))
    pinfo.cols.info:append(string.format(" [malformed: %s: %s]", where, why))
  end
  return tvb:len()
end

-- A heartbeat of a rack, which is known by its port alone.
local rack = Proto("undrop_rack", "Undrop rack")

function rack.dissector(tvb, pinfo, root)
  pinfo.cols.protocol = "Undrop rack"
  local tree = root:add(rack, tvb:range())
  local state = { tvb = tvb, stop = tvb:len(), tree = tree, seen = {}, text = {}, protocol = "maelstrom" }
  local why, where = read_layout("beat", 0, state)
  pinfo.cols.info = "Heartbeat"
  if why then
    tree:add_proto_expert_info(malformed.maelstrom, string.format("Malformed datagram: %s: %s", where, why))
    pinfo.cols.info:append(string.format(" [malformed: %s: %s]", where, why))
  end
  return tvb:len()
end

-- A Hello has 82 bytes and 18 for each of up to 60 networks between header and tag.
local function is_maelstrom(tvb)
  local networks = (tvb:len() - 14 - 16 - 82) / 18
  return networks >= 0 and networks <= 60 and networks % 1 == 0
    and tvb:range(0, 1):uint() == VERSIONS.maelstrom * 16 + 1 and tvb:range(1, 1):uint() <= 2
end

-- Ports and settings --------------------------------------------------------------------------------------------------

local TRAILERS = { { 1, "Always", 1 }, { 2, "If it looks like one", 2 }, { 3, "Never", 3 } }
protocols.ricochet.prefs.trailer = Pref.enum(
  "Datagrams end in a trailer", 2, "Nodes with a cluster key append a trailer of 36 bytes to their datagrams", TRAILERS)
protocols.ricochet.prefs.ports = Pref.range("UDP ports", "7900,7911", "Ports of nodes and of groups", 65535)
protocols.maelstrom.prefs.ports = Pref.range("UDP ports", "4700", "Ports of gateways", 65535)

rack.prefs.ports = Pref.range("UDP ports", "4702", "Ports of the members of a rack", 65535)

-- Follows the ports that a protocol has by its settings.
local function follow_ports(protocol)
  local udp, ports = DissectorTable.get("udp.port"), protocol.prefs.ports
  function protocol.prefs_changed()
    udp:remove(ports, protocol)
    ports = protocol.prefs.ports
    udp:add(ports, protocol)
  end
  udp:add(ports, protocol)
end

local function arrange(name, dissect, is_one)
  local protocol = protocols[name]
  protocol.dissector = dissect
  follow_ports(protocol)
  protocol:register_heuristic("udp", function(tvb, pinfo, root)
    if not is_one(tvb) then
      return false
    end
    pinfo.conversation = protocol
    dissect(tvb, pinfo, root)
    return true
  end)
end

arrange("ricochet", dissect_ricochet, is_ricochet)
arrange("maelstrom", dissect_maelstrom, is_maelstrom)
follow_ports(rack)
