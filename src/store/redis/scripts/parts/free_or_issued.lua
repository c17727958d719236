-- Free; or issued again, if it was issued and that time is not over.

if r_issued > now then
  --include drop_answer
  r_state, r_until, r_fp_how, r_note = ISSUED, r_issued, 0, ''

else
  --include free
end
