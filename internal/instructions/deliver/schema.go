package deliver

// toolList is the array of tools/list, the same for all callers.
var toolList = []byte(`[` +
	`{"name":"read","title":"Read instructions",` +
	`"description":"Gives the instructions for this session, or the text with that name. Without a name: all instructions in one text, which ends with the names of further texts. vars has the values for a text with variables. Without a session token the answer is a generic text, and says why.",` +
	`"inputSchema":{"type":"object","properties":{` +
	`"name":{"type":"string","minLength":1,"maxLength":63,"pattern":"^[a-z0-9][a-z0-9._-]*$","description":"Name of a text; left out: the instructions for this session"},` +
	`"vars":{"type":"object","description":"Values for the variables of that text"}},"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}},` +
	`{"name":"status","title":"Instruction status",` +
	`"description":"Tells whether this session has all its instructions, and if not, why: no_token, expired, store_unreachable or not_permitted.",` +
	`"inputSchema":{"type":"object","properties":{},"additionalProperties":false},` +
	`"outputSchema":{"type":"object","properties":{` +
	`"state":{"type":"string","enum":["full","degraded","refused"]},` +
	`"reason":{"type":"string"},` +
	`"scope":{"type":"array","items":{"type":"string"}},` +
	`"expires":{"type":"string"},"session_id":{"type":"string"},"revision":{"type":"string"},` +
	`"store":{"type":"string","enum":["ok","unreachable","unused"]},` +
	`"fail_closed":{"type":"boolean"}},"required":["state","scope","store","fail_closed"],"additionalProperties":false},` +
	`"annotations":{"readOnlyHint":true,"idempotentHint":true,"openWorldHint":false}}]`)
