-- A claim of WHOM is not granted any more.

if WHOM ~= NO_OWNER and not string.find(rest, WHOM, 1, true) then
  rest = string.sub(rest .. WHOM, -8 * OWNER_LEN)
end
