
-- KEYS are keys of one slot; ARGV[1] has one letter for each, by which the rest of the script knows it (keys.go describes
-- them).

local K = {}
for i = 1, #KEYS do
  K[string.sub(ARGV[1], i, i)] = KEYS[i]
end

