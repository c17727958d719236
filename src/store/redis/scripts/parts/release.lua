-- A release may overtake its claim on another connection: the claim of that
-- owner is then refused, as are those of the owners banned before.

result = REFUSED

if not found then
  --include new_record
  result, write, r_state, r_fp_how = OK, true, NONE, 0

elseif r_owner == owner and r_state == EXECUTING then
  result, write = OK, true
  --include free_or_issued

elseif state == NONE or state == ISSUED then
  if r_owner ~= owner then
    --include ban WHOM=r_owner
  end

  result, write, r_owner = OK, true, owner

elseif r_owner ~= owner and r_state < DONE then
  --include ban WHOM=owner
  write = true
end
