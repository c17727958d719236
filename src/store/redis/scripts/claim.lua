-- claim

--include read

-- Most duplicates meet a record that is done, and get it as it is, whoever
-- they are: it need not be decoded.

if stored and #stored >= RECORD_HEADER
   and string.sub(stored, 1, 2) == '\RECORD_VERSION\DONE'
   and struct.unpack('>I8', stored, 73) > now then
  return struct.pack('>BI8c16', EXISTS, now, owner) .. stored
end

--include decode
--include claim
--include reply
