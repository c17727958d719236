-- purge

--include read
--include decode

-- ARGV[2] is the channel on which caches listen for purges.

result = REFUSED

if found and state ~= NONE and state ~= EXECUTING and r_fence == fence then
  result, write = OK, true
  --include free
  redis.pcall('PUBLISH', ARGV[2], '')
end

--include reply
