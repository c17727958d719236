-- One POST after the other, with new keys or with a set of keys in a circle.

local prefix = os.getenv("BENCH_PREFIX")
local keys = tonumber(os.getenv("BENCH_KEYS"))

local head, tail
local ready = {}
local n = 0


function init(args)
   local file = io.open(os.getenv("BENCH_BODY"), "rb")
   local body = file:read("*a")
   file:close()

   head = "POST " .. wrk.path .. " HTTP/1.1\r\n"
          .. os.getenv("BENCH_HEADERS")
          .. "Content-Length: " .. #body .. "\r\n"
          .. "Idempotency-Key: " .. prefix .. "-"
   tail = "\r\n\r\n" .. body

   -- far apart, so that neighbours in time are none in memory
   for i = 1, keys do
      ready[i] = head .. string.format("%012d", (i * 7919) % keys) .. tail
   end
end


function request()
   n = n + 1

   if keys > 0 then
      return ready[(n - 1) % keys + 1]
   end

   return head .. string.format("%012d", n - 1) .. tail
end


function done(summary, latency, requests)
   local e = summary.errors

   io.write(string.format("BENCH %d %d %d %d %d %d\n", summary.requests,
                          e.connect + e.read + e.write + e.timeout, e.status,
                          summary.duration, latency:percentile(50),
                          latency:percentile(99)))
end
