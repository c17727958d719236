-- The header of the record, with its note.

if r_note == '' then
  header = struct.pack(FORMAT, RECORD_VERSION, FIELDS)

else
  header = struct.pack(FORMAT, RECORD_NOTED, FIELDS)
           .. struct.pack('>I2', #r_note) .. r_note
end
