-- claim

--include read

-- Most duplicates meet a record that is done, and get it as it is, whoever
-- they are: it need not be decoded.

local first = stored and string.sub(stored, 1, 2)

if (first == '\RECORD_VERSION\DONE' or first == '\RECORD_NOTED\DONE')
   and #stored >= RECORD_HEADER
   and struct.unpack('>I8', stored, 73) > now then
  return struct.pack('>BI8c16', EXISTS, now, owner) .. stored
end

--include decode
--include claim
--include reply
