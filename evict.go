package helix

// ReadResultTool is the name of the tool with which a model reads parts of a result that was
// evicted. Agents whose [ContextPolicy] evicts have it.
const ReadResultTool = "read_result"

// MaxEvicted is the largest result that is evicted, in bytes; see [ContextPolicy.EvictOver]. A
// larger one is a tool error, and so is one for which the session has no room; see
// [RuntimeOptions.MaxSession].
const MaxEvicted = 64 << 20
