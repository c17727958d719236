-- list

-- Some of the server's keys, and of these the records in one state.  It writes
-- nothing and has no KEYS; its arguments are owner (16 bytes), state (1 byte;
-- NONE: any state but that) and the first digits of their digests, the cursor
-- of SCAN, and the prefix.  The name of a record has 64
-- characters behind the prefix, or 66 if it is one of a sequence; other keys
-- are not ours.  The reply is
--
--   OK (1 byte), now (8 bytes, ms), owner (16 bytes), length of the cursor
--   (1 byte), records seen (4 bytes), cursor, and for each record: whether it
--   is one of a sequence (1 byte), its digest in hex (64), its header (116),
--   and if its version is that of a record with a note, the length of the note
--   (2) and the note

local owner, wanted = struct.unpack('>c16B', ARGV[1])
local digits = string.sub(ARGV[1], OWNER_LEN + 2)
local prefix, prefix_len, seen, found = ARGV[3], #ARGV[3], 0, {}
local call, sub = redis.pcall, string.sub
local was = wanted == UNKNOWN and EXECUTING or wanted == TOMBSTONE and DONE
            or wanted
local time = redis.call('TIME')
local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000
local scanned = redis.call('SCAN', ARGV[2], 'COUNT', 250)
local keys = scanned[2]

for i = 1, #keys do
  local key = keys[i]
  local len = #key - prefix_len

  if (len == 64 or len == 66) and sub(key, 1, prefix_len) == prefix then
    local first = call('GETRANGE', key, 0, 1)
    local version, state

    if type(first) == 'string' then
      version, state = string.byte(first, 1, 2)
    end

    if version == RECORD_VERSION or version == RECORD_NOTED then
      seen = seen + 1

    else
      state = nil
    end

    local digest, sequence = sub(key, prefix_len + 1), '\0'

    if len == 66 then
      digest, sequence = string.gsub(digest, '[{}]', ''), '\1'
    end

    if state and (state == wanted or state == was
                  or wanted == NONE and state ~= NONE)
       and sub(digest, 1, #digits) == digits then
      local header = call('GETRANGE', key, 0, RECORD_HEADER - 1)

      if version == RECORD_NOTED then
        header = call('GETRANGE', key, 0, RECORD_HEADER + 1 + NOTE_LEN)

        if #header >= RECORD_HEADER + 2 then
          header = sub(header, 1, RECORD_HEADER + 2
                       + struct.unpack('>I2', header, RECORD_HEADER + 1))
        end
      end

      if #digest == 64 and not string.find(digest, '%X')
         and #header >= RECORD_HEADER then
        local lease, stop = struct.unpack('>I8I8', header, 65)

        if state == EXECUTING and lease <= now then
          state = UNKNOWN

        elseif state == DONE and stop <= now then
          state = TOMBSTONE
        end

        if state == wanted or wanted == NONE then
          found[#found + 1] = sequence .. digest .. header
        end
      end
    end
  end
end

return struct.pack('>BI8c16BI4', OK, now, owner, #scanned[1], seen)
       .. scanned[1] .. table.concat(found)
